"""The end of a job's processes with their job, their guard and their server, and jobs that cannot be started."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_service import PARENT, pool, processes_of, until

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.guarded import Guarded, Task
from t5x_harness.google.vertex.state import StateStore, open_store


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Guarded]]:
    """Yields a function that starts processes in the test's folder."""
    started: list[Guarded] = []

    def run(*words: str, **variables: str) -> Guarded:
        started.append(Guarded(Task(words, {"PATH": os.environ["PATH"], **variables}, tmp_path)))
        return started[-1]

    yield run
    for guarded in started:
        guarded.close()
    assert not processes_of(tmp_path)


def line(descriptor: int) -> str:
    """Returns the contents of a pipe once it has any."""
    return os.read(descriptor, 1000).decode()


def test_what_a_process_leaves_behind_ends_with_it(start: Callable[..., Guarded], tmp_path: Path) -> None:
    guarded = start("sh", "-c", "sleep 1000 & setsid sleep 1001 & (setsid sleep 1002 &) ; exit 0")
    assert guarded.status() == 0
    assert not processes_of(tmp_path)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("no-such-program",), 127, "t5x-harness: no-such-program: command not found\n"),
        (("/",), 126, "t5x-harness: /: cannot be run: Permission denied\n"),
        (
            ("echo", "a\0b"),
            126,
            "t5x-harness: the argument 'a\\x00b' has a null character in it, which no process can be given\n",
        ),
        (
            ("echo", "é" * 70_000),
            126,
            f"t5x-harness: the argument '{'é' * 40}' has 140,000 bytes, and Linux gives a process at most 131,071 in "
            "one: put it into a file\n",
        ),
    ],
)
def test_what_cannot_be_run(start: Callable[..., Guarded], words: tuple[str], status: int, message: str) -> None:
    guarded = start(*words)
    assert guarded.status() == status
    assert line(guarded.errors) == message


def test_an_order_may_come_right_behind_the_task(start: Callable[..., Guarded]) -> None:
    guarded = start("sleep", "1000")
    guarded.stop(1000)
    assert guarded.status() == 128 + signal.SIGTERM


def test_a_stopped_process_hears_it_too(start: Callable[..., Guarded]) -> None:
    guarded = start("sh", "-c", "echo $$; kill -STOP $$; sleep 1000")
    pid = int(line(guarded.output))
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0], lambda s: s == "T")
    guarded.stop(1000)
    assert guarded.status() == 128 + signal.SIGTERM


def test_a_process_that_does_not_listen_is_killed(start: Callable[..., Guarded]) -> None:
    guarded = start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    assert line(guarded.output) == "ready\n"
    guarded.stop(1000)
    guarded.stop(0.1)  # the earlier deadline counts
    assert guarded.status() == 128 + signal.SIGKILL


def test_a_process_ends_with_its_guard(start: Callable[..., Guarded], tmp_path: Path) -> None:
    guarded = start("sh", "-c", "echo ready; exec sleep 1000")
    assert line(guarded.output) == "ready\n"
    os.kill(guarded.guard, signal.SIGKILL)
    assert guarded.status() == 137
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_what_a_process_is_told_is_not_in_its_guard_s_command_line(start: Callable[..., Guarded]) -> None:
    guarded = start("sh", "-c", "echo ready; sleep 1000", TOKEN="hunter2")
    assert line(guarded.output) == "ready\n"
    proc = Path(f"/proc/{guarded.guard}")
    assert b"hunter2" not in proc.joinpath("cmdline").read_bytes() + proc.joinpath("environ").read_bytes()
    assert "hunter2" not in repr(Task(("true",), {"TOKEN": "hunter2"}, Path("/")))


HERE = Path(__file__).parent
# A child, one in its own session, and one that has lost its parent. The output shows that all are running.
FAMILY = "sleep 1000 & setsid sleep 1001 & (setsid sleep 1002 &) ; echo ready; wait"
Call = Callable[..., Any]


@pytest.fixture
def state() -> Iterator[StateStore]:
    """Yields a state that other processes can reach."""
    store = open_store("fakeredis:")
    yield store
    store.close()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yields a function that starts servers that run a job for each script, and print the jobs' names first."""
    servers: list[subprocess.Popen[str]] = []

    def start(url: str, *scripts: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = [sys.executable, str(HERE / "job_service.py"), str(tmp_path / f"other-{len(servers)}"), url, *scripts]
        environment = {**os.environ, "PYTHONPATH": path}
        servers.append(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        return servers[-1]

    yield start
    for server in servers:
        with server:
            server.kill()
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_server_that_ends_in_order_leaves_nothing_and_says_so(
    make_service: Call, start_server: Call, state: StateStore, tmp_path: Path
) -> None:
    server = start_server(state.url, FAMILY)
    name = server.stdout.readline().strip()
    until(lambda: processes_of(tmp_path), lambda found: len(found) >= 4)
    server.stdin.close()
    server.wait()
    assert not processes_of(tmp_path)
    job = make_service(open_store(state.url)).get(SimpleNamespace(name=name))
    assert job.state == JobState.FAILED
    assert job.error.message.endswith(" has ended, and the job's processes with it.")


def test_two_servers_tell_the_same_jobs_and_either_cancels_them(
    make_service: Call, start_server: Call, state: StateStore
) -> None:
    name = start_server(state.url, "echo ran there; sleep 1000").stdout.readline().strip()
    service = make_service(open_store(state.url))
    job = service.in_state(SimpleNamespace(name=name), JobState.RUNNING)
    service.until_said(job, "ran there")
    assert [each.name for each in service.ask("ListCustomJobs", parent=PARENT).custom_jobs] == [name]
    assert not processes_of(service.api.services.settings.folder), "only its own server runs it"
    service.cancel(job)
    job = service.ended(job)
    assert (job.state, job.error.message) == (JobState.CANCELLED, "CANCELED")


def test_a_killed_server_takes_all_processes_along_and_its_jobs_are_failed_by_the_next_that_looks(
    make_service: Call, start_server: Call, state: StateStore, tmp_path: Path
) -> None:
    server = start_server(state.url, "sleep 1000", FAMILY)
    names = [server.stdout.readline().strip() for _ in range(2)]
    service = make_service(open_store(state.url))
    first, second = (service.in_state(SimpleNamespace(name=name), JobState.RUNNING) for name in names)
    until(lambda: processes_of(tmp_path), lambda found: len(found) >= 5)
    server.kill()
    server.wait()
    seen = service.get(first)
    listed = {each.name: each for each in service.ask("ListCustomJobs", parent=PARENT).custom_jobs}
    for job in (seen, listed[second.name]):
        assert job.state == JobState.FAILED
        assert job.error.message.startswith(f"t5x-harness: the server that ran this job, process {server.pid} on ")
        assert job.error.message.endswith(" has ended, and the job's processes with it.")
        assert job.HasField("end_time")
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_job_ends_with_a_state_that_is_gone(
    make_service: Call, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = open_store("fakeredis:")
    service = make_service(open_store(server.url))
    service.until_said(service.shell("echo ready; sleep 1; echo more; sleep 1000"), "ready")
    server.close()
    until(lambda: processes_of(tmp_path), lambda left: not left)
    assert "Error" in capfd.readouterr().err, "the one who runs the server is told"


def test_a_job_whose_folder_cannot_be_made_fails_and_can_be_deleted(
    service: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    service.api.services.settings.folder.parent.mkdir(parents=True, exist_ok=True)
    service.api.services.settings.folder.write_text("in the way")
    job = service.get(service.shell("true"))
    assert job.state == JobState.FAILED
    assert job.error.message.startswith("t5x-harness: the job cannot be started: [Errno 20] Not a directory: ")
    assert "NotADirectoryError" in capfd.readouterr().err, "the owner of the server sees where"
    service.ask("DeleteCustomJob", name=job.name)
    assert not service.ask("ListCustomJobs", parent=PARENT).custom_jobs


def test_a_job_for_which_there_is_no_thread_fails(
    service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    before = len(os.listdir("/proc/self/fd"))
    job = service.get(service.shell("true"))
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before
    assert (job.state, job.error.message) == (
        JobState.FAILED,
        "t5x-harness: the job cannot be started: can't start new thread",
    )
    assert "can't start new thread" in capfd.readouterr().err


@pytest.mark.parametrize("first", ["tuning", "trial"])
def test_a_tuning_job_that_cannot_be_started_fails(
    service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], first: str
) -> None:
    kept = Path.mkdir

    def mkdir(folder: Path, *args: Any, **options: Any) -> None:
        if folder.parent == service.api.services.settings.folder and (first == "tuning" or folder.parent.exists()):
            raise OSError(28, "No space left on device", str(folder))
        kept(folder, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    job = service.tune({"worker_pool_specs": [pool("true")]})
    ended = service.ended(job)
    assert ended.state == JobState.FAILED
    assert "t5x-harness: the job cannot be started: [Errno 28] No space left on device" in ended.error.message
    assert "No space left on device" in capfd.readouterr().err


def test_a_process_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def popen(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", popen)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="temporarily unavailable"):
        Guarded(Task(("true",), {}, tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
