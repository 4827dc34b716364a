"""Runs a program on each host of a pod, as with one ssh a worker, and ends all of them when one fails."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from t5x_harness.pods.start import check_pod, pods_of
from t5x_harness.pods.unity import in_words
from t5x_harness.slices.devices import device_environment
from t5x_harness.slices.pod import Pod, registered
from t5x_harness.slices.slice import Slice
from t5x_harness.symptoms.recognize import Symptom, recognize
from t5x_harness.system import processes
from t5x_harness.system.diagnosis import describe_returncode

_LINGER_SECONDS = 5.0
"""How long the other hosts may take to end, too, once one has failed."""

_LOOK_SECONDS = 0.1
_REST_SECONDS = 8.0
_SHARE = 0.02
"""The share of a core that a program uses which only waits."""

_KEPT_LINES = 400
_INTERRUPTED = 130


def run_on_hosts(words: Sequence[str], environment: Mapping[str, str], slice_: Slice) -> int:
    """Runs a program on all hosts of a slice at once, and prints their output line by line, with the host's number.

    Each host has its devices, its environment and its folder for temporary files. The current folder is the same.

    Args:
      words: the program and its arguments.
      environment: the environment that all hosts share.
      slice_: the slice.

    Returns:
      The exit status: 0 if it is 0 on every host, else that of the first host that failed.

    Raises:
      PodRefused: the slice has one host, or too many for this machine.
      OSError: the program cannot be run.
    """
    check_pod(slice_)
    say(f"{slice_.describe()}: a process each, with {slice_.num_devices // slice_.hosts} devices")
    sys.stdout.flush()
    if pid := os.fork():
        return _status_of(pid)
    # Another process starts the hosts, so that they end even if this one is killed.
    status = 1
    try:
        processes.interrupt_with_parent()
        processes.adopt_orphans()
        status = _run(words, environment, slice_)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except OSError as error:
        say(f"{words[0]}: cannot be run: {error.strerror or error}")
        status = 126
    finally:
        processes.kill_below()
        sys.stdout.flush()
        os._exit(status)


def say(line: str) -> None:
    """Prints a line of the harness's own."""
    print(f"t5x-harness exec: {line}", file=sys.stderr, flush=True)


def _status_of(pid: int) -> int:
    while True:
        try:
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        except KeyboardInterrupt:  # Ctrl-C reaches the other process, too, but a signal to this one does not
            processes.kill_quietly(pid, signal.SIGINT)


def _run(words: Sequence[str], environment: Mapping[str, str], slice_: Slice) -> int:
    with contextlib.ExitStack() as held:
        hosts = []
        for pod in (pods := pods_of(slice_)):
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix=f"t5x-host-{pod.index}-"))
            own = {
                **device_environment(slice_, environment, processes=pod.processes),
                **pod.variables(),
                "TPU_WORKER_ID": str(pod.index),
                "TMPDIR": folder,
            }
            hosts.append(_Program(pod.index, words, {**environment, **own}))
        failed = _await(hosts, pods[0])
        living = [host.number for host in hosts if host.process.poll() is None]
        processes.kill_below()
        if not failed:
            return 0
        first = min(failed, key=lambda host: host.has_lost_another())
        ended = f"; ended with it: {in_words(living)}" if living else ""
        how = first.fault or describe_returncode(first.status)
        say(f"host {first.number} of {len(hosts)} {how}{ended}{_why(first.symptoms())}")
        return first.status if first.status > 0 else 128 - first.status


def _why(symptoms: Sequence[Symptom]) -> str:
    if not symptoms:
        return ""
    first = symptoms[0]
    fix = f"\n  {first.fix}" if first.fix else ""
    return f"\n  {first.code}: {first.message}{fix}"


class _Program:
    """The program on one host.

    Attributes:
      number: the number of the host.
      process: its process.
      last: its last lines.
      status: its exit status, once it has one; 1 if it should not have ended.
      fault: why it should not have ended; empty if its status says so.
    """

    def __init__(self, number: int, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.number = number
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self.status = 0
        self.fault = ""
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reading.start()

    def has_ended(self) -> bool:
        """Returns whether the program has ended and all of its output has been printed."""
        status = self.process.poll()
        if status is None:
            return False
        self.status = status
        self._reading.join(_LINGER_SECONDS)  # what it has started may still hold its output
        return True

    def symptoms(self) -> Sequence[Symptom]:
        """Returns what its last lines say about its end, the cause first."""
        return recognize(f"host {self.number}: {line}" for line in self.last)

    def has_lost_another(self) -> bool:
        """Returns whether it says that it has ended because another host had."""
        return any(symptom.role in ("effect", "echo") for symptom in self.symptoms())

    def _read(self, output: IO[bytes]) -> None:
        for line in output:
            text = line.decode(errors="replace").rstrip("\n")
            self.last.append(text)
            print(f"host {self.number}: {text}", flush=True)


def _await(hosts: Sequence[_Program], pod: Pod) -> list[_Program]:
    """Waits until all have ended, or a little longer than until one has failed; returns those that have failed.

    Args:
      hosts: the programs.
      pod: the place of one of them.
    """
    failed: list[_Program] = []
    end = float("inf")
    open_, rest, meeting = list(hosts), _Rest(), _Meeting(pod)
    while open_ and time.monotonic() < end:
        rest.look()
        if absent := meeting.absent(hosts, open_):
            return absent
        for host in [host for host in open_ if host.has_ended()]:
            open_.remove(host)
            if host.status:
                failed.append(host)
                end = min(end, time.monotonic() + _LINGER_SECONDS)
        time.sleep(_LOOK_SECONDS)
    return failed


class _Meeting:
    """Finds programs that have ended without asking JAX for devices, for which those that have asked wait for ever.

    Args:
      pod: the place of one of the programs.
    """

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._asked: set[int] = set()
        self._end = float("inf")

    def absent(self, hosts: Sequence[_Program], living: Sequence[_Program]) -> list[_Program]:
        """Returns them, once others have waited for some seconds: what they have started may still ask."""
        asking = registered(self._pod)
        self._asked |= asking
        absent = [host for host in hosts if host not in living and host.number not in self._asked]
        waiting = [host.number for host in living if host.number in asking]
        if not absent or not waiting:
            self._end = float("inf")
            return []
        self._end = min(self._end, time.monotonic() + _REST_SECONDS)
        if time.monotonic() < self._end:
            return []
        for host in absent:
            host.status = 1
            host.fault = f"has ended without asking JAX for devices, and {in_words(waiting)} cannot start without it"
        return absent


class _Rest:
    """Says once where the programs are, with their stacks, if none of them has used a core for some seconds."""

    def __init__(self) -> None:
        self._used = 0
        self._since = time.monotonic()
        self._is_said = False

    def look(self) -> None:
        """Looks at the programs, and at those that they have started."""
        now = time.monotonic()
        if self._is_said or now - self._since < _REST_SECONDS:
            return
        below = processes.descendants(os.getpid())
        used = sum(map(processes.ticks, below))
        if used - self._used <= _SHARE * (now - self._since) * os.sysconf("SC_CLK_TCK") * len(below):
            self._is_said = True
            say(f"no host has used a core for {now - self._since:.0f} s; the stacks of their Python programs follow")
            for pid in below:
                processes.ask_for_stacks(pid)
        self._used, self._since = used, now
