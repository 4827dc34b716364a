"""List prices of a chip-hour, each with its source and date.

The table is from public pages; what a project really pays is not known here. ``[tool.t5x_harness.prices]`` of
pyproject.toml overrides it by generation: ``v3 = 2.0`` is 2 USD for an hour of one chip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.slices.slice import Slice

_PAGE = "https://cloud.google.com/tpu/pricing"
_CATALOG = "Google's billing catalog, as SkyPilot's catalog v8 has it"
_OWN = "[tool.t5x_harness.prices]"


@dataclasses.dataclass(frozen=True)
class Price:
    """The on-demand price of an hour of one chip.

    Attributes:
      usd: US dollars, without tax and discounts.
      region: the region that it applies to.
      source: where it was published.
      date: the day on which it was; empty if that is not known.
      usd_several_hosts: US dollars in a slice of several hosts, if that differs.
    """

    usd: float
    region: str
    source: str
    date: str = ""
    usd_several_hosts: float | None = None

    def __str__(self) -> str:
        date = self.date or ("" if self.is_own else "no date known")
        where = filter(None, (self.region, self.source, date))
        return f"{self.usd:g} USD per chip-hour ({', '.join(where)})"

    @property
    def is_own(self) -> bool:
        """Whether the user set it."""
        return self.source == _OWN


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
