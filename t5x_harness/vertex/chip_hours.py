"""The chip-hours that a job may use, which have to be paid for even if the job fails."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.vertex.machine import Machine

DEFAULT_MAX_CHIP_HOURS = 16.0
"""How many a job may use by default: four hours of a v3-8, or one of a v3-32."""

_OPTION = "--tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours)"
_HOUR = 3600


class ChipHoursError(ValueError):
    """A job could use more chip-hours than it may; the message has the sum, and what can be changed."""


@dataclasses.dataclass(frozen=True)
class ChipHours:
    """The most that a job can use: all chips of its slice until its deadline.

    Attributes:
      machine: the machine, or the name of its slice.
      chips: how many TPU chips it has; 0 for a machine without TPUs, None if the number is not known.
      seconds: the job's timeout.
    """

    machine: str
    chips: int | None
    seconds: int

    @classmethod
    def of(cls, machine: Machine, seconds: int) -> ChipHours:
        """Returns what a machine can use in so many seconds."""
        chips = machine.chips or (None if machine.is_tpu else 0)
        return cls(str(machine.slice or machine), chips, seconds)

    @property
    def total(self) -> float:
        """The product of chips and hours."""
        return (self.chips or 0) * self.seconds / _HOUR

    def require(self, most: float) -> None:
        """Checks that the job cannot use more than ``most`` chip-hours.

        Raises:
          ChipHoursError: it can.
        """
        if self.chips is None:
            raise ChipHoursError(f"{self}: it is not known whether they exceed the {most:g} of {_OPTION}")
        if self.total > most:
            hours = most / self.chips
            raise ChipHoursError(
                f"{self}: more than the {most:g} that {_OPTION} "
                f"allows. Give --tpu-max-chip-hours="
                f"{_rounded_up(self.total):g}, a timeout of at most {hours:.2g} h, or a smaller slice"
            )

    def __str__(self) -> str:
        limit = f"at most {_hours(self.seconds)}"
        if self.chips is None:
            return f"{self.machine}, {limit}: chip-hours are not known, as its number of chips is not"
        if not self.chips:
            return f"{self.machine}, {limit}: no TPU, no chip-hours"
        return f"{self.machine}: {self.chips} chips x {limit} = {self.total:g} chip-hours"


def _hours(seconds: int) -> str:
    return f"{seconds / _HOUR:g} h" if seconds >= _HOUR else f"{seconds / 60:g} min"


def _rounded_up(number: float) -> float:
    return -(-number // 0.01) / 100
