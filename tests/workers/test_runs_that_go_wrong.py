"""Anything that happens to a run is reported with the end of its log, and never hangs or harms the caller."""

import contextlib
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

Start = Callable[..., RunProcess]


def test_what_a_method_raises_is_told_and_the_run_lives_on(start: Start) -> None:
    run = start()
    run.call("write", text="before")
    with pytest.raises(RunRaised) as caught:
        run.call("fail", message="no such split")
    error = caught.value
    assert str(error) == "fail() raised ValueError: no such split"
    assert (error.type_name, error.message) == ("ValueError", "no such split")
    assert "run_objects.py" in error.traceback
    assert "t5x_harness" not in error.traceback
    assert error.traceback.endswith("ValueError: no such split\n")
    assert "python before" in error.log_tail
    assert run.call("echo", value=1) == 1


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("leave", {"status": 3}, "leave() ended: module run_objects called sys.exit(3) ("),
        ("fail_unprintably", {}, "its text is not available: RuntimeError"),
        ("no_such_method", {}, "'Calculator' object has no attribute 'no_such_method'"),
        ("echo", {"nothing": 1}, "unexpected keyword argument 'nothing'"),
        (
            "unserialisable",
            {},
            "unserialisable() returned a dict that JSON cannot carry: set at unserialisable()['loss'][1]",
        ),
    ],
)
def test_every_kind_of_exception_is_told(start: Start, method: str, arguments: dict[str, Any], message: str) -> None:
    run = start()
    with pytest.raises(RunRaised) as caught:
        run.call(method, **arguments)
    assert message in str(caught.value)
    assert run.call("echo", value=1) == 1


class Server:
    """A process that a run cannot continue without."""

    def __init__(self) -> None:
        self._life, self._theirs = os.pipe()

    def fileno(self) -> int:
        return self._life

    def how_it_ended(self) -> str:
        return "the server was killed" if select.select([self], [], [], 0)[0] else ""

    def end(self) -> None:
        os.close(self._theirs)

    def close(self) -> None:
        os.close(self._life)


@pytest.mark.parametrize("moment", ["in the call", "before it"])
def test_a_run_whose_server_ends_is_over_at_once(start: Start, moment: str) -> None:
    with contextlib.closing(Server()) as server:
        run = start()
        run.needed = server
        assert run.call("echo", value=1) == 1
        if moment == "before it":
            server.end()
        else:
            threading.Timer(0.2, server.end).start()
        with pytest.raises(RunCutOff) as caught:
            run.call("hang")
        assert str(caught.value) == f"the server was killed, in hang(); the run was killed (log: {run.log})"
        with pytest.raises(RunDied, match="cannot be called: the run was ended in the middle of a call"):
            run.call("echo")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("run_objects:broken", "run_objects:broken raised LookupError: no such thing as x"),
        ("no_such_module:f", "no_such_module:f raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("run_objects:nothing", "run_objects:nothing raised AttributeError: module 'run_objects' has no attribute"),
    ],
)
def test_a_failed_factory_is_told_by_every_call(start: Start, factory: str, message: str) -> None:
    run = start(factory, thing="x")
    for _ in range(2):
        with pytest.raises(RunRaised) as caught:
            run.call("echo")
        assert str(caught.value).startswith(message)
        assert "t5x_harness" not in caught.value.traceback


def test_a_missing_folder_is_told(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.start("json:dumps", {}, log=tmp_path / "log", cwd=tmp_path / "nowhere")
    with run, pytest.raises(RunRaised, match=r"FileNotFoundError: .*nowhere"):
        run.call("x")


@pytest.mark.parametrize(
    ("method", "arguments", "how", "in_log"),
    [
        ("exit", {"status": 3}, "The run exited with status 3, in exit()", "about to exit"),
        ("exit", {"status": 0}, "The run exited with status 0, in exit()", "about to exit"),
        ("abort", {}, "The run was killed by SIGABRT (abort", "Fatal Python error: Aborted"),
        ("segfault", {}, "The run was killed by SIGSEGV (segfault), in segfault()", "Segmentation fault"),
        ("signal", {"number": 9}, "The run was killed by SIGKILL (out of memory?), in signal()", "about to be"),
        ("signal", {"number": 15}, "The run was killed by SIGTERM, in signal()", "about to be"),
        ("signal", {"number": 19}, "The run was stopped by SIGSTOP and did not continue within 2 s", "about to be"),
        ("close_descriptors", {}, "The run closed its connection to the harness, in close_descriptors()", ""),
        ("write_into_descriptors", {}, "The run sent what is not a reply (a frame holds no JSON", ""),
    ],
    ids=lambda value: str(value).replace(" ", "_")[:25],
)
def test_a_run_that_dies_is_told_with_its_log(
    start: Start, assert_gone: Callable[..., None], method: str, arguments: dict[str, Any], how: str, in_log: str
) -> None:
    run = start()
    run.call("echo")
    with pytest.raises(RunDied) as caught:
        run.call(method, **arguments)
    assert str(caught.value).startswith(how)
    assert str(run.log) in str(caught.value)
    assert in_log in caught.value.log_tail
    assert in_log in "".join(getattr(caught.value, "__notes__", ""))  # wherever the error is shown
    assert ("), at File " in str(caught.value)) is in_log.endswith(("Aborted", "Segmentation fault"))
    assert_gone(run.pid)
    with pytest.raises(RunDied, match=r"echo\(\) cannot be called: the run "):
        run.call("echo")


def test_a_run_that_dies_between_calls_is_told_by_the_next(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()
    run.call("echo")
    os.kill(run.pid, signal.SIGKILL)
    assert_gone(run.pid)
    with pytest.raises(RunDied, match="was killed by SIGKILL"):
        run.call("echo")


def test_a_hang_is_told_with_its_place_and_last_progress(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()
    with pytest.raises(RunTimedOut) as caught:
        run.call("hang", timeout=0.5)
    error = caught.value
    assert "hang() took longer than its limit of 0.5 s; the run was killed" in str(error)
    assert "last progress: stage train, step 3, of 8" in str(error)
    assert "in wait_for_ever" in error.stack
    assert "in hang" in error.stack
    assert "t5x_harness" not in error.stack
    assert "about to hang" in error.log_tail
    assert "in wait_for_ever" in run.log.read_text()
    assert_gone(run.pid)


def test_a_hang_in_native_code_is_told_with_its_place(start: Start) -> None:
    run = start()
    run.call("echo")
    with pytest.raises(RunTimedOut, match=r'it reported no progress; it was at File ".*", line \d+ in hang_natively'):
        run.call("hang_natively", timeout=0.3)


def test_a_hang_in_the_factory_counts_for_the_first_call(start: Start) -> None:
    run = start("run_objects:slow", seconds=600)
    with pytest.raises(RunTimedOut, match=r"last progress: stage prepare; it was at File \".*\", line \d+ in slow"):
        run.call("echo", timeout=0.5)


def test_a_stopped_run_meets_its_limit(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()
    run.call("echo")
    with pytest.raises(RunTimedOut, match="it had been stopped by SIGSTOP"):
        run.call("signal", number=int(signal.SIGSTOP), timeout=0.3)
    assert_gone(run.pid)


def test_a_run_that_continues_in_time_is_no_failure(start: Start) -> None:
    run = start("run_objects:slow", seconds=0.3)
    os.kill(run.pid, signal.SIGSTOP)
    timer = threading.Timer(0.1, os.kill, (run.pid, signal.SIGCONT))
    timer.start()
    assert run.call("echo", value=1) == 1
    timer.join()


def test_a_reply_that_came_in_time_counts(start: Start) -> None:
    run = start()
    run.call("echo")

    def sleep_past_the_limit(_: Mapping[str, Any]) -> None:
        time.sleep(0.4)

    assert run.call("count", to=1, timeout=0.3, on_progress=sleep_past_the_limit) == 1


def test_a_flood_of_progress_meets_its_limit(start: Start) -> None:
    with pytest.raises(RunTimedOut, match="last progress: stage flood"):
        start().call("flood", timeout=0.3, on_progress=lambda event: time.sleep(0.001))


def test_only_the_end_of_a_big_log_is_read(start: Start) -> None:
    run = start()
    run.call("write_lines", count=50_000)
    with pytest.raises(RunDied) as caught:
        run.call("exit", status=1)
    lines = caught.value.log_tail.splitlines()
    assert len(lines) == 40
    assert lines[-1] == "about to exit"
    assert lines[-2].startswith("line 49999 ")


def test_the_tail_is_of_this_run_only(start: Start) -> None:
    first = start()
    first.call("write", text="old")
    first.close()
    run = start()
    with pytest.raises(RunRaised) as caught:
        run.call("fail", message="x")
    assert "old" not in caught.value.log_tail


def test_a_callback_that_raises_ends_the_run(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()

    def interrupt(_: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.call("hang", on_progress=interrupt)
    assert_gone(run.pid)
    with pytest.raises(RunDied, match="was ended in the middle of a call"):
        run.call("echo")


def test_a_callback_may_close_the_run(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()
    with pytest.raises(RunDied, match=r"closed by the progress callback of hang\(\)"):
        run.call("hang", on_progress=lambda event: run.close())
    assert_gone(run.pid)


def test_an_end_that_is_read_with_an_event_is_not_the_callbacks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two come from different processes, and may be read in either order."""
    run: Any = start()
    poll = run._connection.poll
    monkeypatch.setattr(
        run._connection, "poll", lambda *limits: sorted(poll(*limits), key=lambda event: event.source != "guard")
    )
    events: list[Any] = []

    def slow(event: Mapping[str, Any]) -> None:
        events.append(event["step"])
        time.sleep(1.0)

    with pytest.raises(RunDied, match=r"was killed by SIGKILL .*, in die_on_the_way\(\)"):
        run.call("die_on_the_way", on_progress=slow)
    assert events == [1, 2]


def test_another_thread_may_close_the_run(start: Start, assert_gone: Callable[..., None]) -> None:
    run = start()
    closers: list[threading.Thread] = []

    def close_from_elsewhere(_: Mapping[str, Any]) -> None:
        closers.append(threading.Thread(target=run.close))
        closers[0].start()

    with pytest.raises(RunDied, match=r"The run was closed, in hang\(\)"):
        run.call("hang", on_progress=close_from_elsewhere)
    closers[0].join()
    assert_gone(run.pid)


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("sys.exit(4)", "called sys.exit(4)"),
        ("exit('stop')", "called sys.exit('stop')"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    ],
)
def test_a_module_that_ends_the_program_is_named(zygote: Zygote, tmp_path: Path, line: str, done: str) -> None:
    file = tmp_path / "hostile_tasks.py"
    file.write_text(f"import sys\n\n{line}\n")
    with (
        zygote.start("hostile_tasks:Made", {}, log=tmp_path / "log", python_path=[str(tmp_path)]) as run,
        pytest.raises(RunRaised) as caught,
    ):
        run.call("made")
    assert caught.value.message == f"module hostile_tasks {done}"
    assert caught.value.at == (str(file), 3)


def test_the_limit_of_processes_is_named_where_it_may_be_what_a_run_died_of(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [("this user (ulimit -u)", 25)]
    monkeypatch.setattr("t5x_harness.system.diagnosis._process_limits", lambda: iter(limits))
    with pytest.raises(RunDied, match=r"it may have wanted more processes and threads than the 25 of this user"):
        start().call("abort")
    with pytest.raises(RunDied) as caught:
        start().call("exit", status=3)
    assert "it may have wanted" not in str(caught.value)


def test_a_limit_of_address_space_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    real = resource.getrlimit
    limit = (3 * 1024**3, resource.RLIM_INFINITY)
    monkeypatch.setattr("resource.getrlimit", lambda kind: limit if kind == resource.RLIMIT_AS else real(kind))
    with pytest.raises(RunDied, match=r"it may have wanted more than the 3\.0 GiB of address space that ulimit"):
        start().call("abort")
