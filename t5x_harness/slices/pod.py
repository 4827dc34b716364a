"""A pod: a slice of several hosts as several processes of this machine, each with its host's devices.

On a TPU pod, every host runs the same program, and JAX finds the other hosts as soon as the program asks for devices.
Here the environment of a process says which host it is. The first code that needs devices, or that calls
``jax.distributed.initialize()`` as on a pod, joins the others over the loopback interface. Until they have started, it
says which ones it is waiting for: each process holds a name in the kernel while it lives, an abstract Unix socket
address, which leaves nothing behind, no matter how the process ends.
"""

import contextlib
import dataclasses
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from t5x_harness.variables import POD_VARIABLE, TPU_VM_VARIABLE

MOST_HOSTS = 32
"""The most hosts that a pod has here; larger slices are emulated by one process with all of their devices."""

_FIRST_SECONDS, _LONGEST_SECONDS = 5.0, 60.0


@dataclasses.dataclass(frozen=True)
class Pod:
    """The place of a process among the processes of a slice.

    Attributes:
      coordinator: ``HOST:PORT`` on which process 0 coordinates them.
      processes: their number, which is the number of the slice's hosts.
      index: the number of this process, from 0.
    """

    coordinator: str
    processes: int
    index: int

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that tell a process its place."""
        return {
            POD_VARIABLE: f"{self.coordinator},{self.processes},{self.index}",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_COORDINATOR_BIND_ADDRESS": self.coordinator,  # by default, other machines could also reach it
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Reads the variables of :meth:`variables`; returns None for a process that is alone."""
        if not (text := environment.get(POD_VARIABLE)):
            return None
        coordinator, processes, index = text.split(",")
        return cls(coordinator, int(processes), int(index))


def hosts_on_each_core() -> float:
    """Returns how many hosts of this process's pod share a core of this machine; 1 for a process that is alone."""
    pod = Pod.from_environment(os.environ)
    return max(1.0, pod.processes / len(os.sched_getaffinity(0))) if pod else 1.0


class DevicesInUseError(RuntimeError):
    """Another program on this host uses its devices: a TPU belongs to one program at a time."""


class Attendance:
    """The registration of one process of a pod.

    Args:
      pod: its place in the slice.

    Raises:
      DevicesInUseError: another process has this place. JAX would take this one for a restart of the other, and end all
        processes of the slice.
    """

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._own.bind(_name(pod, pod.index))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                self._own.close()
                where = _host()
                raise DevicesInUseError(
                    f"The TPU is already in use: another program of {where} {pod.index} of {pod.processes} has asked "
                    "JAX for its devices, which one has at a time, and has not ended. Wait for it, or end it on that "
                    f"{where}"
                ) from None

    def missing(self) -> list[int]:
        """Returns the hosts on which no program has registered."""
        return sorted({*range(self._pod.processes)} - {self._pod.index} - registered(self._pod))

    def leave(self) -> None:
        """Releases the name. May be called again."""
        self._own.close()


def registered(pod: Pod) -> set[int]:
    """Returns the hosts of a pod on which a program has registered, and has not ended."""
    found = set()
    for index in range(pod.processes):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            if not asking.connect_ex(_name(pod, index)):
                found.add(index)
    return found


def _name(pod: Pod, index: int) -> bytes:
    return f"\0t5x-harness-pod/{os.geteuid()}/{pod.coordinator}/{index}".encode()


@contextlib.contextmanager
def waiting_for_others(
    attendance: Attendance, pod: Pod, *, first: float = _FIRST_SECONDS, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Reports the hosts that this process waits for, at growing intervals, while the context lasts.

    Args:
      attendance: this process's registration.
      pod: its place in the slice.
      first: the seconds until the first line.
      say: a function that takes a line; prints to standard error by default.
    """
    over = threading.Event()

    def keep_saying() -> None:
        patience = first
        while not over.wait(patience):
            if missing := attendance.missing():
                (say or _say)(message(pod, missing))
            patience = min(2 * patience, _LONGEST_SECONDS)

    saying = threading.Thread(target=keep_saying, name="pod-attendance", daemon=True)
    saying.start()
    try:
        yield
    finally:
        over.set()


def message(pod: Pod, missing: Sequence[int]) -> str:
    """Returns the line that names the hosts that a process is waiting for."""
    on_a_tpu_vm = bool(os.environ.get(TPU_VM_VARIABLE))
    host = _host()
    all_at_once = " (gcloud compute tpus tpu-vm ssh NAME --worker=all --command=…)" if on_a_tpu_vm else ""
    numbers = ", ".join(map(str, missing))
    return (
        f"{host} {pod.index} of {pod.processes} waits for {host}{'s' * (len(missing) > 1)} {numbers}, where no program "
        f"has asked JAX for devices yet: a slice of several hosts begins when all have. Run the same command on each "
        f"{host}{all_at_once}"
    )


def _host() -> str:
    return "worker" if os.environ.get(TPU_VM_VARIABLE) else "host"


def _say(line: str) -> None:
    sys.stderr.write(f"t5x-harness: {line}\n")
    sys.stderr.flush()
