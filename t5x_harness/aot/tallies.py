"""Equal things of a compiled program counted as one: arrays in memory, padded sizes, products, collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar


@dataclasses.dataclass(frozen=True)
class Tally:
    """Things that are equal in the fields before ``count``, which adds up along with the fields after it."""

    @property
    def what(self) -> tuple[object, ...]:
        """The values that are equal."""
        values = vars(self)
        return tuple(values.values())[: list(values).index("count")]

    @property
    def numbers(self) -> Mapping[str, int]:
        """The values that add up, by field."""
        values = vars(self)
        return dict(list(values.items())[list(values).index("count") :])


T = TypeVar("T", bound=Tally)


def added_up(tallies: Iterable[tuple[T, float]], by: str) -> tuple[T, ...]:
    """Joins the tallies of equal things; those that come to nothing are left out.

    Args:
      tallies: each with the factor that its numbers are multiplied by.
      by: the field to sort by, the largest first.
    """
    equal: dict[tuple[object, ...], list[tuple[T, float]]] = {}
    for tally, factor in tallies:
        equal.setdefault(tally.what, []).append((tally, factor))
    joined = []
    for same in equal.values():
        first, _ = same[0]
        totals = {
            name: max(0, round(sum(factor * tally.numbers[name] for tally, factor in same))) for name in first.numbers
        }
        if totals["count"]:
            joined.append(dataclasses.replace(first, **totals))
    return tuple(sorted(joined, key=lambda tally: -tally.numbers[by]))
