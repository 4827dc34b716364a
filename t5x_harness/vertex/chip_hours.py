"""The chip-hours that a job may use up: what is paid for, whatever comes of the job."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.vertex.machine import Machine

DEFAULT_MAX_CHIP_HOURS = 16.0
"""What a job may use up where nobody says more: four hours of a v3-8, or one of a v3-32."""

_OPTION = "--tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours)"
_HOUR = 3600


class ChipHoursError(ValueError):
    """A job could use up more than it may; the message has the sum and both ways out."""


@dataclasses.dataclass(frozen=True)
class ChipHours:
    """The most that a job can use up: all chips of its slice until its deadline.

    Attributes:
      machine: the machine, or the name of the slice that it makes up.
      chips: TPU chips; 0 for a machine without, None where their number is not known.
      seconds: the job's deadline.
    """

    machine: str
    chips: int | None
    seconds: int

    @classmethod
    def of(cls, machine: Machine, seconds: int) -> ChipHours:
        """Returns what a machine can use up in a time."""
        chips = machine.chips or (None if machine.is_tpu else 0)
        return cls(str(machine.slice or machine), chips, seconds)

    @property
    def total(self) -> float:
        """Chips times hours."""
        return (self.chips or 0) * self.seconds / _HOUR

    def require(self, most: float) -> None:
        """Refuses what may be more than ``most`` chip-hours.

        Raises:
          ChipHoursError: it may.
        """
        if self.chips is None:
            raise ChipHoursError(f"{self}: they cannot be held to the {most:g} of {_OPTION}")
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
