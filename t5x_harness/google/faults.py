"""Faults that an emulated Google Cloud injects, and its record of requests, as values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from t5x_harness.google.armed_faults import CountedFault, counted
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.globs import compile_glob

GcsFaultKind = Literal["fail", "stall", "reset", "lose", "truncate", "slow"]

OPERATIONS = (
    "list get download upload delete compose copy rewrite move patch batch "
    "bucket.list bucket.get bucket.create bucket.patch bucket.delete"
).split()
"""What a request can be for."""

_VALUES: Mapping[GcsFaultKind, str] = {
    "fail": "{:g}",
    "stall": "{:g}",
    "reset": "bytes={:g}",
    "truncate": "bytes={:g}",
    "slow": "bytes_per_second={:g}",
}


@dataclasses.dataclass(frozen=True)
class Fault(CountedFault):
    """What goes wrong, and for which requests.

    Attributes:
      kind: what happens.
      value: the status of ``fail``, seconds of ``stall``, bytes of ``reset`` and ``truncate``, bytes per second of
        ``slow``.
      on: an operation of :data:`OPERATIONS`; empty for all.
      match: a glob for the object's name, as ``matchGlob`` has them; empty for all.
    """

    kind: GcsFaultKind
    value: float = 0
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
        if self.value < 0:
            raise ValueError(f"{self.kind}({self.value:g}): it must not be negative")

    def __str__(self) -> str:
        parts = [_VALUES[self.kind].format(self.value)] if self.kind in _VALUES else []
        parts += [f"{name}={value!r}" for name in ("on", "match", "after") if (value := getattr(self, name))]
        if self.times != 1:
            parts.append(f"times={self.times}")
        return f"gcs.{self.kind}({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class RecordedRequest:
    """One request that was answered, or cut off.

    Attributes:
      operation: one of :data:`OPERATIONS`; ``other`` for what none of them names.
      bucket: its bucket; empty if it names none.
      object: its object, the one to be made where there are two; empty if it names none.
      status: of the answer; 0 if there was none.
      received: bytes of the request's body that were taken in.
      sent: bytes of the answer's body.
      conditions: its preconditions, such as ``ifGenerationMatch``, by name.
      fault: the kind of the fault that it met; empty for none.
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


@dataclasses.dataclass(frozen=True)
class UnmetFault:
    """A fault that fewer requests met than it is for; its text says how many, and which requests there were."""

    fault: Fault
    met: int
    operations: tuple[str, ...]

    def __str__(self) -> str:
        missing = f"met by {self.met} of {self.fault.times} requests" if self.met else "not met by any request"
        return f"{self.fault} was {missing} (there were: {counted(self.operations)})"
