"""The times in a job's spec."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

__all__ = ["Scheduling"]

# Both as the API's reference has them.
_WEEK = 7 * 24 * 3600.0
_DAY = 24 * 3600.0
_WAITING = "FLEX_START"


@dataclasses.dataclass(frozen=True)
class Scheduling:
    """What a job's ``scheduling`` says of time.

    Attributes:
      timeout: seconds that it may run.
      waits: whether it waits for machines, where others fail when there are none.
      max_wait: seconds that it waits at most; None if it does not wait, or for as long as it takes.
    """

    timeout: float
    waits: bool
    max_wait: float | None

    @classmethod
    def of(cls, message: Any) -> Self:
        """Reads a ``Scheduling`` message."""
        values = message.DESCRIPTOR.fields_by_name["strategy"].enum_type.values_by_number
        waits = message.strategy in values and values[message.strategy].name == _WAITING
        longest = _seconds(message.max_wait_duration) if message.HasField("max_wait_duration") else _DAY
        return cls(_seconds(message.timeout) or _WEEK, waits, longest or None if waits else None)


def _seconds(duration: Any) -> float:
    return float(duration.ToNanoseconds() / 1e9)
