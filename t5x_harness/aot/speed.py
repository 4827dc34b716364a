"""How long a compiled step takes at least, how long real runs of T5 take, and what the planned steps cost.

The bound is what the hardware allows: all operations at the peak of the matrix units, all bytes at the peak of the
memory. No run reaches it. The band is where runs of T5 on TPUs were that were reported in public:
https://github.com/google-research/text-to-text-transfer-transformer/issues/282 has three of the 11B model. They reached
28 %, 40 % and 42 % of the peak, counted as here: with the products of attention.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t5x_harness.aot.prices import Price

if TYPE_CHECKING:
    from t5x_harness.aot.costs import DeviceCosts
    from t5x_harness.slices.generations import Generation
    from t5x_harness.slices.slice import Slice

REPORTED_UTILIZATION = (0.25, 0.45)
"""The part of the peak operations per second that reported T5 runs reached: the band."""

BAND_NAME = (
    f"{REPORTED_UTILIZATION[0]:.0%} to {REPORTED_UTILIZATION[1]:.0%} of the peak operations per second, "
    "as runs of T5 11B that were reported (text-to-text-transfer-transformer issue 282)"
)
"""What the band is called wherever it is printed."""

_HOUR = 3600


@dataclasses.dataclass(frozen=True)
class Span:
    """A figure as the bound gives it, and at both ends of the band of real runs.

    Attributes:
      bound: what the hardware allows, which no run is better than.
      best: at the upper end of the band.
      worst: at the lower end.
    """

    bound: float
    best: float
    worst: float

    def times(self, factor: float) -> Span:
        """Returns the figures multiplied."""
        return Span(self.bound * factor, self.best * factor, self.worst * factor)

    def per(self, amount: float) -> Span:
        """Returns an amount divided by the figures: tokens by seconds are tokens per second."""
        return Span(amount / self.bound, amount / self.best, amount / self.worst)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The least that parts of a step take on one device, in seconds; at best they overlap.

    Attributes:
      flops_seconds: products at the peak of the matrix units.
      hbm_seconds: reading and writing the large memory at its peak.
      ici_seconds: sending to neighbors at the peak; None where no peak has a source.
    """

    flops_seconds: float
    hbm_seconds: float
    ici_seconds: float | None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by what takes them: ``flops``, ``hbm``, ``ici``."""
        every = {"flops": self.flops_seconds, "hbm": self.hbm_seconds, "ici": self.ici_seconds}
        return {name: seconds for name, seconds in every.items() if seconds is not None}

    @property
    def limit(self) -> str:
        """What bounds the step: ``flops``, ``hbm`` or ``ici``."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def seconds(self) -> Span:
        """The step's seconds: the bound, and what the band of real runs makes of its operations."""
        bound = max(self.parts.values())
        low, high = REPORTED_UTILIZATION
        return Span(bound, max(bound, self.flops_seconds / high), max(bound, self.flops_seconds / low))


@dataclasses.dataclass(frozen=True)
class RunEstimate:
    """What the planned steps take.

    Attributes:
      steps: how many are planned.
      step_seconds: seconds of one.
      tokens_per_second: of the whole slice.
      hours: of all steps; without starting, evaluating and writing checkpoints.
      chip_hours: hours of all chips.
      usd: what they cost by the list; None if no price is known.
      price: that of a chip-hour; None if it has no source.
    """

    steps: int
    step_seconds: Span
    tokens_per_second: Span
    hours: Span
    chip_hours: Span
    usd: Span | None
    price: Price | None


def step_time(costs: DeviceCosts, generation: Generation) -> StepTime:
    """Returns the least that parts of a step take.

    Args:
      costs: what one device does in it.
      generation: the device's; on v2 and v3 a device has half of its chip.
    """
    devices = generation.cores_per_chip
    sent = sum(collective.sent_bytes for collective in costs.collectives)
    ici = generation.chip_ici_bandwidth
    return StepTime(
        flops_seconds=costs.product_flops * devices / generation.chip_flops,
        hbm_seconds=costs.hbm_bytes * devices / generation.chip_hbm_bandwidth,
        ici_seconds=sent * devices / ici if ici is not None else None,
    )


def estimate(time: StepTime, where: Slice, steps: int, tokens: int, price: Price | None) -> RunEstimate:
    """Returns what the planned steps take.

    Args:
      time: of one step.
      where: the slice.
      steps: how many are planned.
      tokens: of one step's batch, inputs and targets, with padding.
      price: of a chip-hour, as ``prices.price_of`` returns it.
    """
    seconds = time.seconds
    hours = seconds.times(steps / _HOUR)
    chip_hours = hours.times(where.num_chips)
    return RunEstimate(
        steps=steps,
        step_seconds=seconds,
        tokens_per_second=seconds.per(tokens),
        hours=hours,
        chip_hours=chip_hours,
        usd=chip_hours.times(price.usd) if price is not None else None,
        price=price,
    )
