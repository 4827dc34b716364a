"""Faults that a private Google injects, and its record of requests, as values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Self

__all__ = ["OPERATIONS", "Fault", "Kind", "RecordedRequest"]

Kind = Literal["fail", "stall", "reset", "truncate", "slow"]

OPERATIONS = (
    "list",
    "get",
    "download",
    "upload",
    "delete",
    "compose",
    "copy",
    "rewrite",
    "patch",
    "batch",
    "bucket.list",
    "bucket.get",
    "bucket.create",
    "bucket.patch",
    "bucket.delete",
)
"""What a request can be for."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong, and for which requests.

    Attributes:
      kind: what happens.
      value: the status of ``fail``, seconds of ``stall``, bytes of ``truncate``, bytes per second of ``slow``.
      on: an operation of :data:`OPERATIONS`; empty for all.
      match: a glob for the object's name, as ``matchGlob`` has them; empty for all.
      times: how many requests meet it; None for all.
      after: how many requests that it is for pass before it.
      optional: whether a test may end without any request having met it.
    """

    kind: Kind
    value: float = 0
    on: str = ""
    match: str = ""
    times: int | None = 1
    after: int = 0
    optional: bool = False

    def __post_init__(self) -> None:
        if self.on and self.on not in OPERATIONS:
            raise ValueError(f"on={self.on!r} is no operation: one of {', '.join(OPERATIONS)}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens at least once, or always with None")
        if self.after < 0:
            raise ValueError(f"after={self.after}: it counts requests")
        if self.kind == "fail" and not 400 <= self.value <= 599:
            raise ValueError(f"fail({self.value:g}): the status of an error is 400 to 599")
        if self.kind == "slow" and self.value <= 0:
            raise ValueError(f"slow(bytes_per_second={self.value:g}): it must be more than 0")
        if self.value < 0:
            raise ValueError(f"{self.kind}({self.value:g}): it must not be negative")

    def __str__(self) -> str:
        told = [f"{self.value:g}"] if self.kind != "reset" else []
        told += [f"{name}={value!r}" for name in ("on", "match") if (value := getattr(self, name))]
        return f"gcs.{self.kind}({', '.join(told)})"


@dataclasses.dataclass(frozen=True)
class RecordedRequest:
    """One request that was answered, or cut off.

    Attributes:
      operation: one of :data:`OPERATIONS`; ``other`` for what none of them names.
      bucket: its bucket; empty if it names none.
      object: its object; empty if it names none.
      status: of the answer; 0 if there was none.
      received: bytes of the request's body.
      sent: bytes of the answer's body.
      user_agent: what the client calls itself.
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

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Reads what the server says."""
        return cls(**value)
