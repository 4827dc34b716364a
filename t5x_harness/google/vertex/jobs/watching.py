"""Waits for all that can happen to a job's processes at once: output, their ends, and a call to wake up."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import selectors
import threading
from collections.abc import Callable, Iterator

from t5x_harness.google.vertex.jobs.guarded import Guarded, Task
from t5x_harness.google.vertex.jobs.logs import LineSplitter
from t5x_harness.google.vertex.jobs.machine import Exited

_CHUNK = 1 << 16
# The system accepts no longer wait, because it counts milliseconds in 31 bits; a job may run for months.
_LONGEST_WAIT = 24 * 3600.0
# The streams, with the severity that the service gives each.
_SEVERITIES = {"output": "INFO", "errors": "ERROR"}


@dataclasses.dataclass(frozen=True)
class UnitSaid:
    """A unit wrote lines to one of its streams."""

    unit: str
    lines: tuple[str, ...]
    severity: str


class Watched:
    """The processes of one job. Only :meth:`wake` may be called from another thread."""

    def __init__(self, start: Callable[[Task], Guarded] = Guarded) -> None:
        self._start = start
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._closed = False
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        self._selector.register(self._awake, selectors.EVENT_READ, None)
        self._units: dict[str, Guarded] = {}
        self._lines: dict[tuple[str, str], LineSplitter] = {}

    def start(self, unit: str, task: Task) -> None:
        """Starts a unit's process. An earlier one, if there was any, has ended."""
        guarded = self._start(task)
        self._units[unit] = guarded
        self._selector.register(guarded.link, selectors.EVENT_READ, (unit, "link"))
        for stream in _SEVERITIES:
            descriptor = getattr(guarded, stream)
            os.set_blocking(descriptor, False)
            self._lines[unit, stream] = LineSplitter()
            self._selector.register(descriptor, selectors.EVENT_READ, (unit, stream))

    def stop(self, unit: str, grace: float) -> None:
        """Tells a unit's process to end; see :meth:`Guarded.stop`."""
        if unit in self._units:
            self._units[unit].stop(grace)

    def wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is awake already
            if not self._closed:
                os.write(self._waker, b"\0")

    def wait(self, seconds: float | None) -> Iterator[UnitSaid | Exited]:
        """Yields what has happened, once something has; or nothing, after so many seconds, a day, or a call to wake."""
        for key, _ in self._selector.select(None if seconds is None else min(seconds, _LONGEST_WAIT)):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._awake, _CHUNK)
                continue
            unit, stream = key.data
            if unit not in self._units:
                continue  # it has ended, in this same round
            if stream == "link":
                yield from self._ended(unit)
            else:
                yield from self._said(unit, stream)

    def close(self) -> None:
        """Ends all processes at once, and releases all resources."""
        for guarded in self._units.values():
            guarded.close()
        self._units.clear()
        self._selector.close()
        with self._lock:
            self._closed = True
            os.close(self._awake)
            os.close(self._waker)

    def _said(self, unit: str, stream: str) -> Iterator[UnitSaid]:
        """Yields what is in a stream now. A stream that has ended is not waited for any more."""
        descriptor: int = getattr(self._units[unit], stream)
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(descriptor)
        if lines := self._lines[unit, stream].feed(data):
            yield UnitSaid(unit, tuple(lines), _SEVERITIES[stream])

    def _ended(self, unit: str) -> Iterator[UnitSaid | Exited]:
        """Yields the rest of the output of a unit of which no process is left, and its end."""
        guarded = self._units[unit]
        status = guarded.status()
        for stream in _SEVERITIES:
            descriptor: int = getattr(guarded, stream)
            while descriptor in self._selector.get_map():
                # All processes that could write have ended, so the stream has an end, unless the guard was killed.
                if not select.select([descriptor], [], [], 0)[0]:
                    self._selector.unregister(descriptor)
                    break
                yield from self._said(unit, stream)
        self._selector.unregister(guarded.link)
        del self._units[unit]
        guarded.close()
        yield Exited(unit, status)
