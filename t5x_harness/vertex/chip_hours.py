"""The chip-hours that a job may use up: what is paid for, whatever comes of the job."""

from __future__ import annotations

import dataclasses

from t5x_harness.vertex.machine import Machine

__all__ = ["DEFAULT_MAX_CHIP_HOURS", "ChipHours", "ChipHoursError"]

DEFAULT_MAX_CHIP_HOURS = 16.0
"""What a job may use up where nobody says more: four hours of a v3-8, or one of a v3-32."""

_HOUR = 3600


class ChipHoursError(ValueError):
    """A job could use up more than it may; the message has the sum and both ways out."""


@dataclasses.dataclass(frozen=True)
class ChipHours:
    """The most that a job can use up: all chips of its slice until its deadline.

    Attributes:
      slice: name of the slice; None where the machine has no TPU, or an unknown one.
      chips: TPU chips; 0 where there are none, or where their number is unknown.
      seconds: the job's deadline.
    """

    slice: str | None
    chips: int
    seconds: int

    @classmethod
    def of(cls, machine: Machine, seconds: int) -> ChipHours:
        """What a machine can use up in a time."""
        tpu = machine.slice
        return cls(tpu.name if tpu else None, tpu.num_chips if tpu else 0, seconds)

    @property
    def total(self) -> float:
        """Chips times hours."""
        return self.chips * self.seconds / _HOUR

    def require(self, most: float) -> None:
        """Refuses what is more than ``most`` chip-hours.

        Raises:
          ChipHoursError: it is.
        """
        if self.total > most:
            hours = most / self.chips
            raise ChipHoursError(
                f"{self}: more than the {most:g} that --tpu-max-chip-hours allows. Give --tpu-max-chip-hours="
                f"{_rounded_up(self.total):g}, a timeout of at most {hours:.2g} h, or a smaller slice"
            )

    def __str__(self) -> str:
        if self.slice is None:
            return f"no TPU slice that is known here, for at most {_hours(self.seconds)}"
        return f"{self.slice}: {self.chips} chips x at most {_hours(self.seconds)} = {self.total:g} chip-hours"


def _hours(seconds: int) -> str:
    return f"{seconds / _HOUR:g} h" if seconds >= _HOUR else f"{seconds / 60:g} min"


def _rounded_up(number: float) -> float:
    return -(-number // 0.01) / 100
