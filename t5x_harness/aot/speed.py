"""The least time of a compiled step, the time of real runs of T5, and the cost of the planned steps.

The bound is what the hardware allows: all operations at the peak of the matrix units, all bytes at the peak of the
memory. No run reaches it. The band is from public reports about runs of T5 on TPUs:
https://github.com/google-research/text-to-text-transfer-transformer/issues/282 has three of the 11B model. They reached
28 %, 40 % and 42 % of the peak, with the products of attention included as they are here.
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
"""The band: parts of the peak operations per second that reported T5 runs reached."""

BAND_NAME = (
    f"{REPORTED_UTILIZATION[0]:.0%} to {REPORTED_UTILIZATION[1]:.0%} of the peak operations per second, "
    "as runs of T5 11B that were reported (text-to-text-transfer-transformer issue 282)"
)
"""How the band is described wherever it is printed."""

_HOUR = 3600


@dataclasses.dataclass(frozen=True)
class Span:
    """A figure at the bound, and at both ends of the band of real runs.

    Attributes:
      bound: the best that the hardware allows.
      best: at the upper end of the band.
      worst: at the lower end.
    """

    bound: float
    best: float
    worst: float

    def times(self, factor: float) -> Span:
        """Multiplies the figures."""
        return Span(self.bound * factor, self.best * factor, self.worst * factor)

    def per(self, amount: float) -> Span:
        """Divides an amount by the figures: tokens by seconds are tokens per second."""
        return Span(amount / self.bound, amount / self.best, amount / self.worst)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The least time that parts of a step take on one device, in seconds; at best they overlap.

    Attributes:
      flops_seconds: computing products at the peak of the matrix units.
      hbm_seconds: reading and writing the large memory at its peak.
      ici_seconds: sending to neighbors at the peak; None if no source gives one.
    """

    flops_seconds: float
    hbm_seconds: float
    ici_seconds: float | None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part: ``flops``, ``hbm``, ``ici``."""
        every = {"flops": self.flops_seconds, "hbm": self.hbm_seconds, "ici": self.ici_seconds}
        return {name: seconds for name, seconds in every.items() if seconds is not None}

    @property
    def limit(self) -> str:
        """What bounds the step: ``flops``, ``hbm`` or ``ici``."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def seconds(self) -> Span:
        """Seconds of the step: the bound, and the band of real runs applied to its operations."""
        bound = max(self.parts.values())
        low, high = REPORTED_UTILIZATION
        return Span(bound, max(bound, self.flops_seconds / high), max(bound, self.flops_seconds / low))


@dataclasses.dataclass(frozen=True)
class RunEstimate:
    """Time and cost of the planned steps.

    Attributes:
      steps: the number of planned steps.
      step_seconds: seconds of one step.
      tokens_per_second: of the whole slice.
      hours: hours of all steps, without startup, evaluation and writing checkpoints.
      chip_hours: hours of all chips.
      usd: their list price; None if no price is known.
      price: the price of a chip-hour; None if it has no source.
    """

    steps: int
    step_seconds: Span
    tokens_per_second: Span
    hours: Span
    chip_hours: Span
    usd: Span | None
    price: Price | None


def step_time(costs: DeviceCosts, generation: Generation) -> StepTime:
    """Returns the least time that the parts of a step take.

    Args:
      costs: what one device does in the step.
      generation: the device's generation; on v2 and v3, a device is half of a chip.
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
    """Estimates time and cost of the planned steps.

    Args:
      time: the time of one step.
      where: the slice.
      steps: the number of planned steps.
      tokens: tokens of one step's batch, inputs and targets, with padding.
      price: the price of a chip-hour, as ``prices.price_of`` returns it.
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
