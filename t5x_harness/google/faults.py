"""Armed faults and the record of requests, for both Cloud Storage and Vertex AI, and the faults of Cloud Storage.

Faults and requests are values that are sent as JSON.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import compile_glob

_MOST_RECORDED = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedFault:
    """The number of requests, or attempts of jobs, to which a fault applies.

    Attributes:
      times: the number of those that hit the fault; None for all.
      after: the number of matching ones that pass before the first one that hits it.
      optional: whether a test may end even if fewer than ``times`` have hit it.
    """

    times: int | None = 1
    after: int = 0
    optional: bool = False

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens at least once, or always with None")

    def is_unmet(self, met: int) -> bool:
        """Returns whether too few have hit the fault; with ``times=None``, one is enough."""
        return not self.optional and met < (1 if self.times is None else self.times)


FaultKind = TypeVar("FaultKind", bound=CountedFault)


@dataclasses.dataclass(frozen=True)
class UnmetFault(Generic[FaultKind]):
    """A fault that too few requests or jobs have hit. Its text also counts all requests, by operation or method.

    Attributes:
      met: the number of requests or jobs that have hit it.
      requests: the operation or method of each request.
    """

    fault: FaultKind
    met: int
    requests: tuple[str, ...]

    def __str__(self) -> str:
        missing = f"hit {self.met} of {self.fault.times} times" if self.met else "not hit"
        counts = sorted(collections.Counter(self.requests).items())
        requests = ", ".join(f"{count} {name}" for name, count in counts) or "none"
        return f"{self.fault} was {missing} (requests: {requests})"


@dataclasses.dataclass
class _ArmedFault(Generic[FaultKind]):
    """A fault, the number of requests that it matched, and the number that hit it."""

    fault: FaultKind
    seen: int = 0
    met: int = 0

    def hits(self) -> bool:
        """Counts a matching request; returns whether it hits the fault."""
        if self.fault.times is not None and self.met >= self.fault.times:
            return False
        self.seen += 1
        if self.seen <= self.fault.after:
            return False
        self.met += 1
        return True


class ArmedFaults(Generic[FaultKind]):
    """The armed faults and the record of requests. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_ArmedFault[FaultKind]] = []
        self._record: collections.deque[Any] = collections.deque(maxlen=_MOST_RECORDED)

    def arm(self, fault: FaultKind) -> None:
        with self._lock:
            self._armed.append(_ArmedFault(fault))

    def take(self, matches: Callable[[FaultKind], bool]) -> FaultKind | None:
        """Returns the fault that a request now hits, or None, and counts the hit.

        Args:
          matches: returns whether a fault applies to this request.
        """
        with self._lock:
            return next((armed.fault for armed in self._armed if matches(armed.fault) and armed.hits()), None)

    def give_back(self, fault: FaultKind) -> None:
        """Takes back a hit: the request ended first, or the fault had no effect."""
        with self._lock:
            for armed in self._armed:
                if armed.fault is fault:
                    armed.met -= 1

    def record(self, request: Any) -> None:
        """Records an answered request, which is a dataclass."""
        with self._lock:
            self._record.append(request)

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()
            self._record.clear()

    def report(self) -> dict[str, Any]:
        """Returns the faults, each with its number of hits, and the requests, as JSON values."""
        with self._lock:
            faults = [{"fault": dataclasses.asdict(armed.fault), "met": armed.met} for armed in self._armed]
            return {"faults": faults, "requests": [dataclasses.asdict(each) for each in self._record]}


GcsFaultKind = Literal["fail", "stall", "reset", "lose", "truncate", "slow"]

OPERATIONS = (
    "list get download upload delete compose copy rewrite move patch batch "
    "bucket.list bucket.get bucket.create bucket.patch bucket.delete"
).split()
"""The operations that a request can perform."""

_VALUES: Mapping[GcsFaultKind, str] = {
    "fail": "{:g}",
    "stall": "{:g}",
    "reset": "bytes={:g}",
    "truncate": "bytes={:g}",
    "slow": "bytes_per_second={:g}",
}


@dataclasses.dataclass(frozen=True)
class Fault(CountedFault):
    """A fault and the requests to which it applies.

    Attributes:
      kind: the kind of the fault.
      value: the status of ``fail``, the seconds of ``stall``, the bytes of ``reset`` and ``truncate``, or the bytes per
        second of ``slow``.
      bytes: the bytes of a longer body after which ``fail`` or ``stall`` happens: of the request's, or for ``stall``
        also of the answer's.
      on: an operation of :data:`OPERATIONS`; empty for all.
      match: a glob for the object's name, in the syntax of ``matchGlob``; empty for all.
    """

    kind: GcsFaultKind
    value: float = 0
    bytes: int = 0
    on: str = ""
    match: str = ""

    def __post_init__(self) -> None:
        if self.on and self.on not in OPERATIONS:
            raise ValueError(f"on={self.on!r} is not an operation: one of {', '.join(OPERATIONS)}")
        try:
            compile_glob(self.match)
        except Invalid as error:
            raise ValueError(f"match={self.match!r}: {error.message}") from None
        super().__post_init__()
        if self.after < 0:
            raise ValueError(f"after={self.after}: it counts requests")
        if self.kind == "fail" and not 400 <= self.value <= 599:
            raise ValueError(f"fail({self.value:g}): the status of an error is 400 to 599")
        if self.kind == "slow" and self.value <= 0:
            raise ValueError(f"slow(bytes_per_second={self.value:g}): it must be more than 0")
        if self.bytes and self.kind not in ("fail", "stall"):
            raise ValueError(f"{self}: it takes no bytes")
        if self.value < 0 or self.bytes < 0:
            raise ValueError(f"{self}: a number must not be negative")

    def __str__(self) -> str:
        parts = [_VALUES[self.kind].format(self.value)] if self.kind in _VALUES else []
        parts += [f"{name}={value!r}" for name in ("bytes", "on", "match", "after") if (value := getattr(self, name))]
        if self.times != 1:
            parts.append(f"times={self.times}")
        return f"gcs.{self.kind}({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class RecordedRequest:
    """A request that was answered or cut off.

    Attributes:
      operation: one of :data:`OPERATIONS`, or ``other``.
      bucket: the request's bucket; empty if it names none.
      object: the request's object, or the destination if it also has a source; empty if it names none.
      status: the status of the answer; 0 if there was none.
      received: the number of bytes of the request's body that were read.
      sent: the number of bytes of the answer's body that were sent.
      conditions: the request's preconditions by name, such as ``ifGenerationMatch``.
      fault: the kind of the fault that the request hit; empty for none.
    """

    operation: str
    bucket: str
    object: str
    status: int
    received: int
    sent: int
    user_agent: str
    conditions: Mapping[str, str]
    fault: str
