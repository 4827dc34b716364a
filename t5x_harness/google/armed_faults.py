"""Faults while they are armed, and the record of requests: the same for Cloud Storage and for Vertex AI."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

_KEPT = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedFault:
    """How many requests, or attempts of jobs, a fault is for.

    Attributes:
      times: how many meet it; None for all.
      after: how many that it is for pass before it.
      optional: whether a test may end although fewer met it.
    """

    times: int | None = 1
    after: int = 0
    optional: bool = False

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens at least once, or always with None")

    def is_unmet(self, met: int) -> bool:
        """Returns whether it was met too seldom: one that is for all (``times=None``) has to be met once."""
        return not self.optional and met < (1 if self.times is None else self.times)


def counted(names: Iterable[str]) -> str:
    """Returns how often each name is there, in words."""
    counts = collections.Counter(names)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


FaultKind = TypeVar("FaultKind", bound=CountedFault)


@dataclasses.dataclass
class _Armed(Generic[FaultKind]):
    """A fault, and how many it was for and how many met it."""

    fault: FaultKind
    seen: int = 0
    met: int = 0

    def meets(self) -> bool:
        if self.fault.times is not None and self.met >= self.fault.times:
            return False
        self.seen += 1
        if self.seen <= self.fault.after:
            return False
        self.met += 1
        return True


class ArmedFaults(Generic[FaultKind]):
    """The faults that are armed, and what was asked. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Armed[FaultKind]] = []
        self._record: collections.deque[Any] = collections.deque(maxlen=_KEPT)

    def arm(self, fault: FaultKind) -> None:
        with self._lock:
            self._armed.append(_Armed(fault))

    def take(self, is_for: Callable[[FaultKind], bool]) -> FaultKind | None:
        """Returns the fault that somebody meets now, which is counted; None for none.

        Args:
          is_for: whether a fault is for him.
        """
        with self._lock:
            return next((armed.fault for armed in self._armed if is_for(armed.fault) and armed.meets()), None)

    def give_back(self, fault: FaultKind) -> None:
        """Takes back that somebody met a fault: he ended before it did, or there was nothing that it could do."""
        with self._lock:
            for armed in self._armed:
                if armed.fault is fault:
                    armed.met -= 1

    def record(self, request: Any) -> None:
        """Takes note of a request that was answered, a dataclass."""
        with self._lock:
            self._record.append(request)

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()
            self._record.clear()

    def report(self) -> dict[str, Any]:
        """Faults with how many met them, and requests, for JSON."""
        with self._lock:
            faults = [{"fault": dataclasses.asdict(armed.fault), "met": armed.met} for armed in self._armed]
            return {"faults": faults, "requests": [dataclasses.asdict(each) for each in self._record]}
