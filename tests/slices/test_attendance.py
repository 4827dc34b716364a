"""A waiting process of a pod names the processes that it is waiting for, until they have started."""

import contextlib
import queue
import subprocess
import sys
from collections.abc import Iterator

import pytest

from t5x_harness.slices.pod import Attendance, DevicesInUseError, Pod, message, waiting_for_others
from t5x_harness.variables import TPU_VM_VARIABLE

PROGRAM = (
    "import sys; from t5x_harness.slices.pod import Attendance, Pod;"
    "kept = Attendance(Pod(sys.argv[1], 3, int(sys.argv[2]))); print('here', flush=True); sys.stdin.read()"
)


@pytest.fixture
def coordinator(request: pytest.FixtureRequest) -> str:
    """Returns an address that no other test uses; nothing listens there."""
    return f"127.0.0.1:{request.node.name}"


@contextlib.contextmanager
def program(coordinator: str, index: int) -> Iterator[subprocess.Popen[str]]:
    """Starts a program that takes a place in the pod, and kills it at the end."""
    words = [sys.executable, "-c", PROGRAM, coordinator, str(index)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "here\n"
        yield other
        other.kill()


@pytest.fixture
def first(coordinator: str) -> Iterator[Attendance]:
    attendance = Attendance(Pod(coordinator, 3, 0))
    yield attendance
    attendance.leave()


def test_those_who_have_come_are_not_missing(first: Attendance, coordinator: str) -> None:
    assert first.missing() == [1, 2]
    second = Attendance(Pod(coordinator, 3, 1))
    assert (first.missing(), second.missing()) == ([2], [2])
    second.leave()
    assert first.missing() == [1, 2]
    assert Attendance(Pod("127.0.0.1:another", 3, 1)).missing() == [0, 2]


def test_one_that_was_killed_is_missing_again(first: Attendance, coordinator: str) -> None:
    with program(coordinator, 2):
        assert first.missing() == [1]
    assert first.missing() == [1, 2]


def test_a_second_program_of_a_host_is_refused_until_the_first_has_ended(coordinator: str) -> None:
    with program(coordinator, 1):
        with pytest.raises(DevicesInUseError) as refused:
            Attendance(Pod(coordinator, 3, 1))
        assert str(refused.value) == (
            "The TPU is already in use: another program of host 1 of 3 has asked JAX for its devices, which one has at "
            "a time, and has not ended. Wait for it, or end it on that host"
        )
    Attendance(Pod(coordinator, 3, 1)).leave()


def test_it_is_said_again_until_nobody_is_missing(first: Attendance, coordinator: str) -> None:
    pod, said = Pod(coordinator, 3, 0), queue.SimpleQueue[str]()
    with waiting_for_others(first, pod, first=0.01, say=said.put):
        assert "waits for hosts 1, 2, where no program" in said.get(timeout=60)
        second = Attendance(Pod(coordinator, 3, 1))
        while "hosts 1, 2" in (line := said.get(timeout=60)):
            pass
        assert "host 0 of 3 waits for host 2, where no program" in line
    second.leave()


def test_on_a_tpu_vm_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TPU_VM_VARIABLE, "/tpu/0a1b2c3d")
    assert message(Pod("127.0.0.1:1", 4, 1), [0, 2, 3]) == (
        "worker 1 of 4 waits for workers 0, 2, 3, where no program has asked JAX for devices yet: a slice of several "
        "hosts begins when all have. Run the same command on each worker (gcloud compute tpus tpu-vm ssh NAME "
        "--worker=all --command=…)"
    )
