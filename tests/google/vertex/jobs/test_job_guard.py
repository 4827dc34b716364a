"""The guard of a job's process: the process's output and end, and the end of everything that it has started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_service import processes_of, until

from t5x_harness.google.vertex.jobs.guarded import Guarded, Task


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
