"""Faults while they are armed, and the record of requests."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import threading
from collections.abc import Callable
from typing import Any

from t5x_harness.google.vertex.faults import RecordedCall, VertexFault, VertexFaultKind

_KEPT = 100_000


@dataclasses.dataclass
class _Armed:
    """A fault, and how many it was for and how many met it."""

    fault: VertexFault
    seen: int = 0
    met: int = 0

    def meets(self, kinds: tuple[VertexFaultKind, ...], name: str) -> bool:
        fault = self.fault
        if fault.kind not in kinds or not fnmatch.fnmatchcase(name, fault.on):
            return False
        if fault.times is not None and self.met >= fault.times:
            return False
        self.seen += 1
        if self.seen <= fault.after:
            return False
        self.met += 1
        return True


class Faults:
    """The faults that are armed, and what was asked. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Armed] = []
        self._told: list[Callable[[], None]] = []
        self._record: collections.deque[RecordedCall] = collections.deque(maxlen=_KEPT)

    def on_arm(self, function: Callable[[], None]) -> None:
        """Has a function called whenever a fault was armed: for what is under way, and may meet it."""
        self._told.append(function)

    def arm(self, fault: VertexFault) -> None:
        with self._lock:
            self._armed.append(_Armed(fault))
        for function in self._told:
            function()

    def take(self, name: str, *kinds: VertexFaultKind) -> VertexFault | None:
        """The fault that a request or a job meets now, which is counted; None for none.

        Args:
          name: of the method, or the job's display name.
        """
        with self._lock:
            armed = next((armed for armed in self._armed if armed.meets(kinds, name)), None)
        return armed.fault if armed else None

    def give_back(self, fault: VertexFault) -> None:
        """Takes back that something met a fault: it ended before it did."""
        with self._lock:
            for armed in self._armed:
                if armed.fault is fault:
                    armed.met -= 1

    def record(self, call: RecordedCall) -> None:
        """Takes note of a request that was answered."""
        with self._lock:
            self._record.append(call)

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()
            self._record.clear()

    def told(self) -> dict[str, Any]:
        """Faults with how many met them, and requests, for JSON."""
        with self._lock:
            faults = [{"fault": dataclasses.asdict(armed.fault), "met": armed.met} for armed in self._armed]
            return {"faults": faults, "requests": [dataclasses.asdict(call) for call in self._record]}
