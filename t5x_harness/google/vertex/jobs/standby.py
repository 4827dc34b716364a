"""Interpreters that stand by for the jobs that a session has announced, and import while the session still plans them.

Importing takes most of a small job's time. A job takes such an interpreter instead of a new one if it would have
imported the same libraries, that is, with the same command and the same variables. No other job takes the same
interpreter, and nothing else differs: it starts under its own guard, with its output in the same pipes.
"""

import contextlib
import dataclasses
import json
import select
import socket
import threading
from collections.abc import Callable, Mapping

from t5x_harness.google.vertex.jobs.guarded import Guarded, Task
from t5x_harness.google.vertex.jobs.programs import find_programs
from t5x_harness.google.vertex.jobs.standby_process import PROGRAM

# Variables that differ between jobs, and that no imported library reads. The folder of HOME moves to the job as well.
_OWN = frozenset({"HOME", "TMPDIR", "CLUSTER_SPEC", "TF_CONFIG"})
_OWN_PREFIXES = ("AIP_", "CLOUD_ML_")


class Standby:
    """One standby interpreter, which starts immediately.

    Args:
      task: a job without arguments, as it would be started. No other job has its HOME.
      programs: the import path of the object that describes its program.

    Raises:
      ValueError: the task does not run that program.
    """

    def __init__(self, task: Task, programs: str) -> None:
        command = ("python", "-m", find_programs(programs).module)
        if task.words[-len(command) :] != command:
            raise ValueError(f"{' '.join(task.words[-3:])} is not {' '.join(command)}")
        self._prefix = task.words[: -len(command)]
        self._task = task
        self._orders, theirs = socket.socketpair()
        waiting = dataclasses.replace(
            task, words=(*self._prefix, "python", "-c", PROGRAM, str(theirs.fileno()), programs)
        )
        try:
            self._guarded = Guarded(waiting, inherits=(theirs.fileno(),))
        finally:
            theirs.close()

    def fits(self, task: Task) -> bool:
        """Returns whether it has imported what a new process of the task would import."""
        begin = len(self._task.words)
        return (
            task.words[:begin] == self._task.words
            and _shared(task.environment) == _shared(self._task.environment)
            and not select.select([self._guarded.link], [], [], 0)[0]  # it has ended
        )

    def become(self, task: Task) -> Guarded:
        """Turns it into the process of a task that it fits; raises OSError if it has just ended."""
        with self._orders:
            task.make_folders()
            order = {
                "words": list(task.words[len(self._prefix) :]),
                "environment": dict(task.environment),
                "given": dict(self._task.environment),
                "folder": str(task.folder),
            }
            self._orders.sendall(json.dumps(order).encode() + b"\n")
        return self._guarded

    def close(self) -> None:
        """Ends it unless it has become the process of a task."""
        self._orders.close()
        self._guarded.close()


class Standbys:
    """The standby interpreters: at most one at a time, and in total no more than the number of announced jobs.

    Args:
      make: makes the task of an announced job, with a number that makes its folders unique.
      jobs: the number of announced jobs.
      programs: the import path of the object that describes their program.
    """

    def __init__(self, make: Callable[[int], Task], jobs: int, programs: str) -> None:
        self._programs = programs
        self._make = make
        self._left = jobs
        self._lock = threading.Lock()
        self._waiting: Standby | None = None

    def begin(self) -> None:
        """Starts the next interpreter if another job is still expected."""
        with self._lock:
            if self._left <= 0 or self._waiting is not None:
                return
            self._left -= 1
            with contextlib.suppress(OSError, ValueError):  # jobs start without it
                self._waiting = Standby(self._make(self._left), self._programs)

    def start(self, task: Task) -> Guarded:
        """Starts a process of a job: in the standby interpreter if that fits, and otherwise in a new one."""
        with self._lock:
            standby = self._waiting
            if standby is not None and standby.fits(task):
                self._waiting = None
            else:
                standby = None
        if standby is None:
            return Guarded(task)
        try:
            return standby.become(task)
        except OSError:
            standby.close()
            return Guarded(task)
        finally:
            self.begin()

    def close(self) -> None:
        """Ends the standby interpreter, and starts no other."""
        with self._lock:
            self._left = 0
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()


def _shared(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that must be equal in both processes, with the folder of HOME as ``~``."""
    return {
        name: value.replace(environment["HOME"], "~")
        for name, value in environment.items()
        if name not in _OWN and not name.startswith(_OWN_PREFIXES)
    }
