"""The least time of a compiled step, the time of real runs of T5, and the cost of the planned steps at list prices.

The bound is what the hardware allows: all operations at the peak of the matrix units, all bytes at the peak of the
memory. No run reaches it. The band is from public reports about runs of T5 on TPUs:
https://github.com/google-research/text-to-text-transfer-transformer/issues/282 has three about the 11B model. They
reached 28%, 40% and 42% of the peak, with the products of attention included as they are here.

Prices are from public pages; the prices that a project really pays are not known here. ``[tool.t5x_harness.prices]`` of
pyproject.toml overrides them by generation: ``v3 = 2.0`` is 2 USD for an hour of one chip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from t5x_harness.aot.costs import DeviceCosts
from t5x_harness.slices.slice import Generation, Slice

_PAGE = "https://cloud.google.com/tpu/pricing"
_CATALOG = "Google's billing catalog, as SkyPilot's catalog v8 has it"
_OWN = "[tool.t5x_harness.prices]"


@dataclasses.dataclass(frozen=True)
class Price:
    """The on-demand price of an hour of one chip.

    Attributes:
      usd: US dollars, without tax and discounts.
      region: the region that it applies to.
      source: the page that published it.
      date: the date of publication; empty if it is not known.
      usd_several_hosts: US dollars in a slice of several hosts, if that differs.
    """

    usd: float
    region: str
    source: str
    date: str = ""
    usd_several_hosts: float | None = None

    def __str__(self) -> str:
        date = self.date or ("" if self.source == _OWN else "no date known")
        where = filter(None, (self.region, self.source, date))
        return f"{self.usd:g} USD per chip-hour ({', '.join(where)})"


PRICES: Mapping[str, Price] = {
    "v2": Price(1.125, "us-central1", _CATALOG, usd_several_hosts=1.5),
    "v3": Price(2.0, "us-central1, us-east1", _CATALOG),
    "v4": Price(3.22, "us-central2", "Google's announcement of Cloud TPU v5p", "2023-12-06"),
    "v5e": Price(1.2, "us-central1, us-east1", _PAGE, "2026-09-17"),
    "v5p": Price(4.2, "us-central1, us-east5", _PAGE, "2026-09-17"),
    "v6e": Price(2.7, "us-east1, us-east5", _PAGE, "2026-09-17"),
}
"""List prices by generation."""


def price_of(where: Slice, own: Mapping[str, float] | None = None) -> Price | None:
    """Returns the price of a slice's chips; None for a generation whose price has no source.

    Args:
      where: the slice.
      own: the user's prices by generation in USD per chip-hour, which take precedence.
    """
    name = where.generation.name
    if own and name in own:
        return Price(own[name], "", _OWN)
    price = PRICES.get(name)
    if price is not None and price.usd_several_hosts is not None and where.hosts > 1:
        return dataclasses.replace(price, usd=price.usd_several_hosts, usd_several_hosts=None)
    return price


REPORTED_UTILIZATION = (0.25, 0.45)
"""The band: shares of the peak operations per second that reported T5 runs reached."""

BAND_NAME = (
    f"{REPORTED_UTILIZATION[0]:.0%} to {REPORTED_UTILIZATION[1]:.0%} of the peak operations per second, "
    "as runs of T5 11B that were reported (text-to-text-transfer-transformer issue 282)"
)
"""The description of the band wherever it is printed."""

_HOUR = 3600


@dataclasses.dataclass(frozen=True)
class Span:
    """A figure at the bound, and at both ends of the band of real runs.

    Attributes:
      bound: the best figure that the hardware allows.
      best: the figure at the upper end of the band.
      worst: the figure at the lower end of the band.
    """

    bound: float
    best: float
    worst: float

    def times(self, factor: float) -> Span:
        """Multiplies the figures."""
        return Span(self.bound * factor, self.best * factor, self.worst * factor)

    def per(self, amount: float) -> Span:
        """Divides an amount by the figures, such as tokens by seconds for tokens per second."""
        return Span(amount / self.bound, amount / self.best, amount / self.worst)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The least time that parts of a step take on one device; at best they overlap.

    Attributes:
      parts: the seconds by part: ``flops`` to compute products at the peak of the matrix units, ``hbm`` to read and
        write the large memory at its peak, and ``ici`` to send to neighbors at the peak, if a source states that peak.
    """

    parts: Mapping[str, float]

    @property
    def limit(self) -> str:
        """The part that bounds the step: ``flops``, ``hbm`` or ``ici``."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def seconds(self) -> Span:
        """The seconds of the step: the bound, and the band of real runs applied to its operations."""
        bound = max(self.parts.values())
        low, high = REPORTED_UTILIZATION
        flops = self.parts["flops"]
        return Span(bound, max(bound, flops / high), max(bound, flops / low))


@dataclasses.dataclass(frozen=True)
class RunEstimate:
    """The time and cost of the planned steps.

    Attributes:
      steps: the number of planned steps.
      step_seconds: the seconds of one step.
      tokens_per_second: the tokens per second of the whole slice.
      hours: the hours of all steps, without startup, evaluation and writing checkpoints.
      chip_hours: the hours of all chips together.
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
      costs: the work of one device in the step.
      generation: the device's generation; on v2 and v3, a device is half of a chip.
    """
    sent = sum(collective.sent_bytes for collective in costs.collectives)
    peaks = {
        "flops": (costs.product_flops, generation.chip_flops),
        "hbm": (costs.hbm_bytes, generation.chip_hbm_bandwidth),
        "ici": (sent, generation.chip_ici_bandwidth),
    }
    devices = generation.cores_per_chip
    return StepTime({part: work * devices / peak for part, (work, peak) in peaks.items() if peak is not None})


def estimate(time: StepTime, where: Slice, steps: int, tokens: int, price: Price | None) -> RunEstimate:
    """Estimates the time and cost of the planned steps.

    Args:
      time: the time of one step.
      where: the slice.
      steps: the number of planned steps.
      tokens: the tokens of one step's batch, inputs and targets, with padding.
      price: the price of a chip-hour, as :func:`price_of` returns it.
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
