"""No process, descriptor or zombie outlives its run, however that ends."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.system import processes
from t5x_harness.workers.errors import RunDied, RunTimedOut, ZygoteFailed
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
Start = Callable[..., RunProcess]
AssertGone = Callable[..., None]
STARTERS = ["start_child", "start_stubborn_child", "start_daemon", "start_fork"]


def kill_the_guard_of(run: RunProcess) -> None:
    parent = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)


@pytest.mark.parametrize("ending", ["close", "die", "limit"])
def test_all_that_a_run_started_ends_with_it(start: Start, assert_gone: AssertGone, ending: str) -> None:
    run = start()
    started = [run.call(starter) for starter in STARTERS]
    if ending == "close":
        run.close()
        run.close()
    elif ending == "die":
        with pytest.raises(RunDied, match="exited with status 1"):
            run.call("exit", status=1)
    else:
        with pytest.raises(RunTimedOut):
            run.call("hang", timeout=0.2)
    assert_gone(run.pid, *started)


def test_a_stopped_run_can_be_closed(start: Start, assert_gone: AssertGone) -> None:
    run = start()
    started = run.call("start_child")
    os.kill(run.pid, signal.SIGSTOP)
    os.kill(started, signal.SIGSTOP)
    run.close()
    assert_gone(run.pid, started)


def test_a_run_in_its_factory_is_closed_at_once(start: Start, assert_gone: AssertGone) -> None:
    run = start("run_objects:slow", seconds=600)
    run.close()
    assert_gone(run.pid)


@pytest.mark.parametrize("ending", ["close", "crash", "kill the guard"])
def test_what_a_run_leaves_in_its_temporary_folder_is_removed(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run = zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
    own = Path(run.call("surroundings")["env"]["TMPDIR"])
    assert own.parent == temporary
    (own / "__pycache__").mkdir()
    (own / "__pycache__" / "__autograph_generated_file.py").touch()
    if ending == "crash":
        with pytest.raises(RunDied):
            run.call("abort")
    elif ending == "kill the guard":
        kill_the_guard_of(run)
        with pytest.raises(RunDied):
            run.call("hang")
    run.close()
    assert list(temporary.iterdir()) == []


def test_a_run_without_room_for_a_temporary_folder_has_the_usual_one(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) as run:
        assert run.call("surroundings")["env"]["TMPDIR"] == str(tmp_path / "none")


def test_an_abandoned_run_ends(zygote: Zygote, tmp_path: Path, assert_gone: AssertGone) -> None:
    run = zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
    started = run.call("start_daemon")
    pid = run.pid
    del run
    assert_gone(pid, started)


def test_closing_the_zygote_ends_its_runs(tmp_path: Path, assert_gone: AssertGone) -> None:
    with Zygote() as zygote:
        runs = [zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) for _ in range(3)]
        started = [run.call("start_daemon") for run in runs]
        pids = [run.pid for run in runs]
        below = processes.descendants(zygote.pid or 0)
        assert {*pids, *started} < set(below)
    assert_gone(*pids, *started, *below)


def test_a_zygote_is_closed_while_another_thread_waits_for_its_imports(tmp_path: Path, assert_gone: AssertGone) -> None:
    (tmp_path / "forever.py").write_text("import time\ntime.sleep(600)\n")
    zygote = Zygote(preload=["forever"], python_path=[str(tmp_path)])
    zygote.warm()
    pid = zygote.pid
    assert pid is not None
    failed: list[Exception] = []

    def start() -> None:
        try:
            zygote.start("run_objects:Anything", {}, log=tmp_path / "run.log")
        except ZygoteFailed as error:
            failed.append(error)

    waiting = threading.Thread(target=start)
    waiting.start()
    while not zygote._lock.locked():
        waiting.join(0.01)
        assert waiting.is_alive()
    zygote.close()
    waiting.join(60)
    assert "was killed by SIGKILL" in str(failed[0])
    assert_gone(pid)


def test_a_killed_guard_leaves_nothing_and_harms_no_other_run(start: Start, assert_gone: AssertGone) -> None:
    run, other = start(), start()
    others_child = other.call("start_daemon")
    started = [run.call(starter) for starter in STARTERS]
    kill_the_guard_of(run)
    with pytest.raises(RunDied, match="The run's guard process was killed"):
        run.call("hang")
    assert_gone(run.pid, *started)
    assert other.call("echo", value=1) == 1
    assert Path(f"/proc/{others_child}").exists()


def test_a_run_does_not_outlive_its_guard_and_its_zygote(tmp_path: Path, assert_gone: AssertGone) -> None:
    with Zygote() as zygote:
        run = zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
        run.call("echo")
        os.kill(zygote.pid or 0, signal.SIGKILL)
        kill_the_guard_of(run)
        with pytest.raises(RunDied, match="guard process was killed"):
            run.call("hang")
        assert_gone(run.pid)


def test_a_killed_zygote_harms_no_run_and_is_replaced(tmp_path: Path, assert_gone: AssertGone) -> None:
    def start_run() -> RunProcess:
        return zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])

    with Zygote() as zygote:
        first = start_run()
        first.call("echo")
        killed = zygote.pid
        assert killed
        os.kill(killed, signal.SIGKILL)
        assert_gone(killed)
        assert first.call("echo", value=1) == 1
        second = start_run()
        assert second.call("echo", value=2) == 2
        assert zygote.pid != killed
    assert_gone(first.pid, second.pid)


def test_many_runs_leak_neither_descriptors_nor_processes(tmp_path: Path) -> None:
    with Zygote() as zygote:

        def use(count: int) -> None:
            for number in range(count):
                with zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) as run:
                    assert run.call("echo", value=number) == number
                if number % 10 == 0:
                    run = zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
                    with pytest.raises(RunDied):
                        run.call("exit", status=1)

        def held() -> tuple[int, int]:
            assert_gone_below(zygote)
            return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{zygote.pid}/fd"))

        def assert_gone_below(zygote: Zygote) -> None:
            # Reaped, not just dead: a zombie keeps its folder in /proc until then.
            below = processes.descendants(zygote.pid or 0)
            while any(Path(f"/proc/{pid}").exists() for pid in below):
                os.sched_yield()

        use(1)
        before = held()
        use(50)
        assert held() == before


def test_zygotes_leak_no_descriptors(tmp_path: Path) -> None:
    def use() -> None:
        with Zygote() as zygote, zygote.start("json:dumps", {}, log=tmp_path / "log"):
            pass
        with Zygote(preload=["no_such_module"]) as zygote, pytest.raises(ZygoteFailed):
            zygote.start("json:dumps", {}, log=tmp_path / "log")

    use()
    before = os.listdir("/proc/self/fd")
    use()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# A program that starts a run with child processes, prints their pids and then waits, or gets into trouble.
PROGRAM = """
    import os, signal, sys, threading, time
    from t5x_harness.workers.zygote import Zygote

    here, log, how = sys.argv[1:]
    zygote = Zygote()
    run = zygote.start("run_objects:Calculator", {}, log=log, python_path=[here])
    started = [run.call(s) for s in ("start_child", "start_daemon", "start_fork")]
    if how == "forked":
        if os.fork() == 0:
            time.sleep(600)
    print(zygote.pid, run.pid, *started, flush=True)
    if how == "exit":
        sys.exit(0)
    with zygote, run:
        run.call("hang")
"""


def _start_program(tmp_path: Path, how: str) -> tuple[subprocess.Popen[str], list[int]]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, str(program), HERE, str(tmp_path / "log"), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    return process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize(
    ("how", "number"), [("wait", signal.SIGKILL), ("forked", signal.SIGKILL), ("wait", signal.SIGINT), ("exit", 0)]
)
def test_a_parent_leaves_nothing_however_it_ends(
    tmp_path: Path, assert_gone: AssertGone, how: str, number: int
) -> None:
    """This also holds if it forgets to close, and if a fork of a killed parent still has all its sockets."""
    process, pids = _start_program(tmp_path, how)
    assert len(pids) == 5
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    elif number:
        os.kill(process.pid, number)
    assert process.wait() == -number
    assert_gone(*pids)
    if how == "forked":
        os.killpg(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt") is (number == signal.SIGINT)


def test_a_killed_parent_ends_a_zygote_that_still_imports(tmp_path: Path, assert_gone: AssertGone) -> None:
    (tmp_path / "slow_import.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    code = """
        import sys, time
        from t5x_harness.workers.zygote import Zygote
        zygote = Zygote(preload=["slow_import"], python_path=[sys.argv[1]])
        zygote.warm()
        time.sleep(0.5)
        print(zygote.pid, flush=True)
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    assert_gone(pid)


def test_a_fork_of_the_parent_cannot_end_its_runs(start: Start, zygote: Zygote) -> None:
    run = start()
    run.call("echo")
    pid = os.fork()
    if pid == 0:
        run.close()
        zygote.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert run.call("echo", value=1) == 1
