"""Equal things of a compiled program counted as one: arrays in memory, padded sizes, products, collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar


@dataclasses.dataclass(frozen=True)
class Tally:
    """Things that are equal in the fields before ``count``, which adds up along with the fields after it."""


T = TypeVar("T", bound=Tally)


def added_up(tallies: Iterable[tuple[T, float]], by: str) -> tuple[T, ...]:
    """Joins the tallies of equal things; those that come to nothing are left out.

    Args:
      tallies: each with the factor that its numbers are multiplied by.
      by: the field to sort by, the largest first.
    """
    totals: dict[tuple[object, ...], list[Any]] = {}
    for tally, factor in tallies:
        names = [field.name for field in dataclasses.fields(tally)]
        at = names.index("count")
        key = tuple(getattr(tally, name) for name in names[:at])
        total = totals.setdefault(key, [tally, *[0] * len(names[at:])])
        total[1:] = [sum_ + factor * getattr(tally, name) for sum_, name in zip(total[1:], names[at:], strict=True)]
    joined = []
    for tally, *numbers in totals.values():
        names = [field.name for field in dataclasses.fields(tally)][-len(numbers) :]
        rounded = {name: max(0, round(number)) for name, number in zip(names, numbers, strict=True)}
        if rounded["count"]:
            joined.append(dataclasses.replace(tally, **rounded))
    return tuple(sorted(joined, key=lambda tally: -getattr(tally, by)))
