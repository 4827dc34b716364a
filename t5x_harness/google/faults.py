"""Faults that an emulated Cloud Storage injects, and its record of requests, as values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from t5x_harness.google.armed_faults import CountedFault
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import compile_glob

GcsFaultKind = Literal["fail", "stall", "reset", "lose", "truncate", "slow"]

OPERATIONS = (
    "list get download upload delete compose copy rewrite move patch batch "
    "bucket.list bucket.get bucket.create bucket.patch bucket.delete"
).split()
"""The operations that a request can be."""

_VALUES: Mapping[GcsFaultKind, str] = {
    "fail": "{:g}",
    "stall": "{:g}",
    "reset": "bytes={:g}",
    "truncate": "bytes={:g}",
    "slow": "bytes_per_second={:g}",
}


@dataclasses.dataclass(frozen=True)
class Fault(CountedFault):
    """A fault and the requests that it is for.

    Attributes:
      kind: what happens.
      value: the status of ``fail``, the seconds of ``stall``, the bytes of ``reset`` and ``truncate``, or the bytes per
        second of ``slow``.
      on: an operation of :data:`OPERATIONS`; empty for all.
      match: a glob for the object's name, in the syntax of ``matchGlob``; empty for all.
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
    """One request that was answered or cut off.

    Attributes:
      operation: one of :data:`OPERATIONS`, or ``other``.
      bucket: the request's bucket; empty if it names none.
      object: the request's object; of a source and a destination, the destination. Empty if it names none.
      status: the status of the answer; 0 if there was none.
      received: how many bytes of the request's body were read.
      sent: how many bytes of the answer's body were sent.
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
