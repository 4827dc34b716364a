"""Starts the processes of a pod, if the slice has several hosts and this machine has the memory for them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from t5x_harness.execute.host_files import of_host
from t5x_harness.pods.run import PodRun
from t5x_harness.pods.stall import IDLE_SECONDS
from t5x_harness.slices.pod import MOST_HOSTS, Pod
from t5x_harness.slices.slice import Slice, slices_of_hosts
from t5x_harness.system.memory import available_bytes
from t5x_harness.system.network_filter import free_ports
from t5x_harness.workers.errors import WorkerError
from t5x_harness.workers.run import ForkedRun, RunProcess

HOST_BYTES = 600 * 2**20
"""The memory that one host takes in a shrunk run, in bytes: benchmarks/pods.py measures it."""

StartHost = Callable[[Mapping[str, str], Path], RunProcess]
"""Starts the process of one host, with these variables and this log."""


class PodRefused(WorkerError):
    """The hosts of this slice cannot be processes here; the message says why, and ``fix`` what to do."""

    code = "POD22"


def start_pod(slice_: Slice, log: Path, start: StartHost, patience: float = IDLE_SECONDS) -> PodRun:
    """Starts the process of each host of a slice.

    Args:
      slice_: the slice.
      log: the log of the first host; the others have theirs beside it.
      start: starts one of them.
      patience: how many seconds no host may use a core before the pod counts as stuck.

    Raises:
      PodRefused: the slice has one host, or too many for this machine.
    """
    check_pod(slice_)
    started: list[ForkedRun] = []
    try:
        for pod in pods_of(slice_):  # one by one: those that have started are ended if another cannot
            run = start(pod.variables(), of_host(log, pod.index))
            assert isinstance(run, ForkedRun)
            started.append(run)
    except BaseException:
        for run in started:
            run.close()
        raise
    return PodRun(started, patience)


def pods_of(slice_: Slice) -> list[Pod]:
    """Returns the places of the hosts of a slice, which meet at a free port of this machine."""
    (port,) = free_ports(1)
    return [Pod(f"127.0.0.1:{port}", slice_.hosts, index) for index in range(slice_.hosts)]


def check_pod(slice_: Slice, available: int | None = None) -> None:
    """Refuses a pod that cannot be here.

    Args:
      slice_: the slice.
      available: the bytes of memory that are free; None to ask the kernel.

    Raises:
      PodRefused: the slice has one host, or too many for this machine.
    """
    hosts = slice_.hosts
    if hosts == 1:
        near = ", ".join(each.name for each in slices_of_hosts(2, 4)[:_NAMED])
        raise PodRefused(
            f"{slice_.name} has one host, so that there is no pod to emulate",
            fix=f"name a slice of several hosts, such as {near}, or leave out the option",
        )
    if hosts > MOST_HOSTS:
        raise PodRefused(
            f"{slice_.name} has {hosts} hosts, and a pod has at most {MOST_HOSTS} here",
            fix="leave out the option: one process then emulates all devices of the slice; or name a smaller slice",
        )
    needed = hosts * HOST_BYTES
    available = available_bytes() if available is None else available
    if needed > available:
        raise PodRefused(
            f"{hosts} hosts of {slice_.name} need about {hosts} x {_gib(HOST_BYTES)} = {_gib(needed)} of memory, and "
            f"{_gib(available)} are free",
            fix=f"name a slice of at most {max(available // HOST_BYTES, 1)} hosts, or free memory",
        )


_NAMED = 3


def memory_of(hosts: int) -> str:
    """Returns what a pod needs, in words."""
    return f"{hosts}, each a process here, in about {_gib(hosts * HOST_BYTES)} of memory"


def _gib(number: int) -> str:
    return f"{number / 2**30:.1f} GiB"
