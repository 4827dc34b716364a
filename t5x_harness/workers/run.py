"""The caller's side of a run: an object in a forked process, whose methods can be called."""

import abc
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from t5x_harness.system.closing import Closing
from t5x_harness.system.diagnosis import (
    crashed_at,
    describe_status,
    innermost_frame,
    low_limit,
    read_tail,
    without_frames,
)
from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut, WorkerError
from t5x_harness.workers.framing import Connection, Event, not_json

OnProgress = Callable[[Mapping[str, Any]], None]
Environment = Mapping[str, str | None]
"""Variables to add to the environment; None removes one."""

# How long a run may remain stopped before it counts as dead.
STOP_SECONDS = 2.0
# How long after a call's limit messages that have already arrived are read.
LATE_SECONDS = 0.2
# How long an idle run may take to exit like a program, joining threads and running atexit functions.
GRACE_SECONDS = 5.0
# How long the guard may take to kill and reap; it gives up a little earlier.
CLEARING_SECONDS = 10.0
# How long to wait for the stacks of a hanging run, and how long a log must be unchanged to count as complete.
STACK_SECONDS = 1.5
QUIET_SECONDS = 0.1
_STACK_LINES = 1000  # how many lines of a log the stacks of all threads may take
# The file in which the harness's frames of a run end and the user's begin.
ENTRY_FILE = "t5x_harness/workers/run_process.py"


class Needed(Protocol):
    """A process that a run depends on."""

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the process has ended."""

    def how_it_ended(self) -> str:
        """Describes how it ended, with the process as the subject; returns an empty string as long as it lives."""


class RunProcess(Closing):
    """An object made by a factory, whose methods are called through JSON values; a context manager.

    Attributes:
      pid: the process that holds the object.
      log: the file that receives the process's stdout and stderr.
      needed: the process that the run depends on, whose end ends a call. A run in this process does not notice it.
    """

    pid: int
    log: Path
    needed: Needed | None = None

    @abc.abstractmethod
    def call(
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **kwargs: Any
    ) -> Any:
        """Calls ``object.method(**kwargs)``.

        The first call also waits for the factory, and raises the factory's exception.

        Args:
          method: the name of the method.
          timeout: the seconds of wall time that the call may take; None for no limit.
          on_progress: a function that is called, in this thread, with every event that the object reports.
          **kwargs: the method's arguments, which are JSON values.

        Returns:
          The method's result, after a trip through JSON.

        Raises:
          RunRaised: the method or the factory raised an exception, or returned a value that JSON cannot represent.
          RunDied: the process ended, or was stopped for too long.
          RunCutOff: the process that the run depends on has ended.
          RunTimedOut: the call passed its limit.
          TypeError: an argument is not a JSON value.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the run and every process that it started. May be called again."""


class ForkedRun(RunProcess):
    """A run in its own process, below a guard that cleans up everything that it started."""

    def __init__(self, connection: Connection, *, pid: int, log: Path, log_start: int, folder: str | None) -> None:
        self.pid = pid
        self.log = log
        self._connection = connection
        self._log_start = log_start
        self._folder = folder  # which the guard removes
        self._owner = os.getpid()
        self._lock = threading.RLock()  # held during a call; a callback of the call may close the run
        self._calls = 0
        self._busy = True  # until the run answers, it may still be in its factory
        self._closing = False  # another thread requested the end
        self._over = ""  # the reason that no further reply will come; empty while one may
        self._stopped: tuple[str, float] | None = None  # the signal, and the time when it came
        self._last_event: Mapping[str, Any] | None = None

    def call(  # noqa: D102 - RunProcess says it
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **kwargs: Any
    ) -> Any:
        check_arguments(method, kwargs)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            if self._over:
                raise self._died(f"{method}() cannot be called: the run {self._over}")
            self._calls += 1
            self._last_event = None
            try:
                self._connection.send({"call": self._calls, "method": method, "kwargs": kwargs})
                self._busy = True
                reply = self._await_reply(method, deadline, timeout, on_progress)
            except BaseException:
                # If anything left the call unfinished (a limit, Ctrl-C, a callback that raised), the child is in the
                # middle of it and of no further use.
                self._end("was ended in the middle of a call")
                raise
            self._busy = False
        if "raised" in reply:
            raise RunRaised(reply, log_tail=self._tail())
        return reply["value"]

    def close(self) -> None:  # noqa: D102 - RunProcess says it
        if os.getpid() != self._owner:
            self._connection.close()  # in a fork of the parent, which must not end the run
            return
        if not self._lock.acquire(blocking=False):
            self._closing = True
            self._connection.ask_for_end()  # another thread is in a call, which now ends
            self._lock.acquire()
        try:
            if self._over:
                return
            if not self._busy and not self._stopped:
                self._connection.send({"end": True})
                self._wait_for_end(time.monotonic() + GRACE_SECONDS, "was closed", even_if_stopped=False)
            self._end("was closed")
        finally:
            self._lock.release()

    def kill(self) -> None:
        """Kills the run and every process that it started, without waiting; :meth:`close` must still be called."""
        if os.getpid() == self._owner:
            self._closing = True
            self._connection.ask_for_end()

    def _await_reply(
        self, method: str, deadline: float | None, timeout: float | None, on_progress: OnProgress | None
    ) -> Mapping[str, Any]:
        late: float | None = None
        hung_up: float | None = None
        garbled = ""
        while True:
            stopped = self._stopped and self._stopped[1] + STOP_SECONDS
            limits = [limit for limit in (deadline, stopped, hung_up) if limit is not None]
            needed = None if self.needed is None else self.needed.fileno()
            events = self._connection.poll(min(limits, default=None), needed)
            if any(event.source == "guard" and "ended" in (event.message or {"ended": None}) for event in events):
                events += self._connection.drain()
            ended: WorkerError | None = None
            for event in events:
                if event.source == "guard":
                    ended = self._note(event, method) or ended
                elif event.message is None:
                    hung_up = time.monotonic() + STOP_SECONDS
                    garbled = event.broken
                elif "progress" in event.message:
                    self._last_event = event.message["progress"]
                    if on_progress:
                        on_progress(event.message["progress"])
                        if self._over and ended is None:
                            raise self._died(f"The run was closed by the progress callback of {method}()")
                elif event.message.get("id") == self._calls:
                    return event.message  # type: ignore[no-any-return]
            if ended:
                raise ended
            if self.needed is not None and (how := self.needed.how_it_ended()):
                raise RunCutOff(f"{how}, in {method}(); the run was killed (log: {self.log})", log_tail=self._tail())
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                # Messages that came during a slow callback came in time, but a flood of events must not go on forever.
                late = now if late is None else late
                if not events or now >= late + LATE_SECONDS:
                    raise self._timed_out(method, timeout)
            if stopped and now >= stopped and self._stopped:
                reason = f"was stopped by {self._stopped[0]} and did not continue within {STOP_SECONDS:g} s"
                raise self._died(f"The run {reason}, in {method}(); it was killed")
            if hung_up and now >= hung_up:
                reason = f"sent what is not a reply ({garbled})" if garbled else "closed its connection to the harness"
                raise self._died(
                    f"The run {reason}, in {method}(); it was killed. Does it close or write to file descriptors that "
                    "it did not open?"
                )

    def _note(self, event: Event, method: str) -> WorkerError | None:
        """Processes the guard's report; returns the error if the run is over."""
        if event.message is None:
            self._finish("lost its guard process")
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            return self._died(f"The run's guard process was killed, in {method}(); the run was killed with it")
        self._note_stop(event.message)
        if "ended" not in event.message:
            return None
        status = event.message["ended"]
        how = "was closed" if self._closing or status is None else describe_status(status)
        self._finish(how)
        limit = "" if status is None or self._closing else low_limit(self._tail(), status=status)
        frame = crashed_at(read_tail(self.log, start=self._log_start, lines=_STACK_LINES))
        return self._died(f"The run {how}, in {method}(){f', at {frame}' if frame else ''}{limit}")

    def _note_stop(self, message: Mapping[str, Any]) -> None:
        if "stopped" in message:
            self._stopped = (message["stopped"], time.monotonic()) if message["stopped"] else None

    def _timed_out(self, method: str, timeout: float | None) -> RunTimedOut:
        tail = self._tail()
        dump = "" if self._over else self.stacks()
        stack = innermost_frame(dump, entry_file=ENTRY_FILE)
        parts = [f"{method}() took longer than its limit of {timeout:g} s; the run was killed"]
        if self._stopped:
            parts.append(f"it had been stopped by {self._stopped[0]}")
        progress = ", ".join(f"{key} {value}" for key, value in (self._last_event or {}).items())
        parts.append(f"last progress: {progress}" if progress else "it reported no progress")
        if stack:
            parts.append(f"it was at {stack}")
        elif dump:
            parts.append("it was in no method of its own; see the stacks in its log")
        else:
            parts.append("it gave no Python stack")
        return RunTimedOut(
            "; ".join(parts) + f" (log: {self.log})", stack=without_frames(dump, entry_file=ENTRY_FILE), log_tail=tail
        )

    def stacks(self) -> str:
        """Makes the process write the Python stacks of its threads into its log, and returns them."""
        start = self._log_size()
        self._connection.send("stacks", to="guard")
        deadline = time.monotonic() + STACK_SECONDS
        size, quiet_since = start, time.monotonic()
        while (now := time.monotonic()) < deadline and (size == start or now < quiet_since + QUIET_SECONDS):
            time.sleep(0.02)
            if self._log_size() != size:
                size, quiet_since = self._log_size(), time.monotonic()
        written = read_tail(self.log, start=start, lines=_STACK_LINES)
        first = min((i for i in (written.find("Thread 0x"), written.find("Current thread 0x")) if i >= 0), default=-1)
        return "" if first < 0 else written[first:]

    def _end(self, reason: str) -> None:
        """Kills everything, and waits until it is gone."""
        if self._over:
            return
        self._connection.ask_for_end()
        self._wait_for_end(time.monotonic() + CLEARING_SECONDS, reason)
        self._finish(reason)

    def _wait_for_end(self, deadline: float, reason: str, *, even_if_stopped: bool = True) -> None:
        while not self._over and time.monotonic() < deadline and (even_if_stopped or not self._stopped):
            for event in self._connection.poll(deadline):
                if event.source == "guard" and (event.message is None or "ended" in event.message):
                    self._finish(reason)
                elif event.source == "guard":
                    self._note_stop(event.message)

    def _finish(self, reason: str) -> None:
        if not self._over:
            self._over = reason
            self._connection.ask_for_end()
            self._connection.close()

    def _died(self, message: str) -> RunDied:
        return RunDied(f"{message} (log: {self.log})", log_tail=self._tail())

    def _tail(self) -> str:
        return read_tail(self.log, start=self._log_start)

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0


def environment(env: Environment) -> dict[str, str]:
    """Returns the environment of this process, updated with ``env``."""
    # One by one: pytest removes one of its variables after each test, and another thread may start a run just then.
    merged = {**{name: os.environ.get(name) for name in list(os.environ)}, **env}
    return {name: value for name, value in merged.items() if value is not None}


def start_message(
    factory: str, argument: Mapping[str, Any], *, cwd: Path | str, env: Environment, python_path: Sequence[str]
) -> dict[str, Any]:
    """Checks and collects everything that a run needs to start.

    Raises:
      TypeError: the argument is not a JSON value.
      ValueError: the factory does not have the form ``package.module:callable``.
    """
    module, colon, attribute = factory.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"a factory is written as package.module:callable, not {factory!r}")
    if found := not_json(dict(argument), "argument"):
        raise TypeError(f"{factory} cannot be called with {found}: only JSON values can be sent to a run")
    return {
        "factory": factory,
        "argument": dict(argument),
        "cwd": os.path.abspath(cwd),
        "env": environment(env),
        "python_path": [os.path.abspath(folder) for folder in python_path],
    }


def check_arguments(method: str, kwargs: Mapping[str, Any]) -> None:
    """Refuses arguments that cannot be sent.

    Raises:
      TypeError: an argument cannot be sent; the message names it, the place in it and the type.
    """
    for name, value in kwargs.items():
        if found := not_json(value, name):
            raise TypeError(f"{method}() cannot be called with {found}: only JSON values can be sent to a run")
