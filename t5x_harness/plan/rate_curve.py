"""How a learning rate changes over the steps of a run: the steps where it turns, found by evaluating few of them."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

_GRID = 512
"""How many steps are evaluated first; the exact steps of the turns between them are found then."""
_NOISE = 1e-6
"""Relative changes that are below the precision of float32."""
_PLATEAU = 0.05
"""The part of a stretch that has to be flat before its end counts as a turn."""


@dataclasses.dataclass(frozen=True)
class RateCurve:
    """How a learning rate changes, by the steps where it turns.

    Attributes:
      points: step and rate: the first, every turn, the last.
      not_finite: the first evaluated step whose rate is NaN or infinite, and that rate; None if there is none.
    """

    points: tuple[tuple[int, float], ...]
    not_finite: tuple[int, float] | None = None

    @property
    def highest(self) -> tuple[int, float]:
        """The first step with the highest rate, and that rate."""
        return max(self.points, key=lambda point: point[1])

    @property
    def rises(self) -> bool:
        """Whether the rate goes up anywhere."""
        return any(b > a * (1 + _NOISE) for (_, a), (_, b) in itertools.pairwise(self.points))

    @property
    def is_flat(self) -> bool:
        """Whether the rate is the same at every step."""
        return not (self.rises or self.falls or self.not_finite)

    @property
    def falls(self) -> bool:
        """Whether the rate goes down anywhere."""
        return any(b < a * (1 - _NOISE) for (_, a), (_, b) in itertools.pairwise(self.points))


def curve_of(rate: Callable[[int], float], first: int, last: int) -> RateCurve:
    """Returns how a rate changes from one step to another, both included.

    A change that comes and goes between two neighbors of the several hundred steps on the grid is not seen.

    Raises:
      Exception: what the rate raises.
    """
    rates: dict[int, float] = {}

    def at(step: int) -> float:
        if step not in rates:
            rates[step] = rate(step)
        return rates[step]

    pivots = [first, *_extremes(at, first, last), last]
    turns = set(pivots)
    for left, right in itertools.pairwise(pivots):
        turns |= _ends_of_plateaus(at, left, right)
    broken = min((step for step, value in rates.items() if not math.isfinite(value)), default=None)
    if broken is None:
        return RateCurve(tuple((step, at(step)) for step in sorted(turns)))
    finite = max((step for step, value in rates.items() if step < broken and math.isfinite(value)), default=broken - 1)
    between = range(finite + 1, broken + 1)
    broken = between[bisect.bisect_left(between, True, key=lambda step: not math.isfinite(at(step)))]
    turns |= {step for step in (broken, broken + 1) if step <= last}
    return RateCurve(tuple((step, at(step)) for step in sorted(turns)), (broken, at(broken)))


def _extremes(at: Callable[[int], float], first: int, last: int) -> list[int]:
    """Returns the steps between the first and the last where the rate turns from rising to falling, or back."""
    grid = _grid(first, last)
    found: list[int] = []
    pivot, direction = 0, 0
    for index in range(1, len(grid)):
        change = at(grid[index]) - at(grid[pivot])
        size = _NOISE * max(abs(at(grid[index])), abs(at(grid[pivot])))
        if direction * change >= 0 and abs(change) > 0:  # on in the same direction, or the first change
            if abs(change) > size:
                pivot, direction = index, 1 if change > 0 else -1
        elif abs(change) > size:
            found.append(_refined(at, grid, pivot, direction))
            pivot, direction = index, -direction
    return found


def _refined(at: Callable[[int], float], grid: Sequence[int], index: int, direction: int) -> int:
    """Returns the exact step of an extreme that is next to a point of the grid."""
    left, right = grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)]
    while right - left > 2:
        steps = _grid(left, right)
        best = max(range(len(steps)), key=lambda i: (direction * at(steps[i]), -steps[i]))
        narrower = steps[max(best - 1, 0)], steps[min(best + 1, len(steps) - 1)]
        if narrower == (left, right):
            break
        left, right = narrower
    return max(range(left, right + 1), key=lambda step: (direction * at(step), -step))


def _ends_of_plateaus(at: Callable[[int], float], left: int, right: int) -> set[int]:
    """Returns where a monotonic stretch leaves its first rate, and where it reaches its last."""
    found: set[int] = set()
    steps = range(left, right + 1)
    if abs(at(right) - at(left)) <= _NOISE * max(abs(at(left)), abs(at(right))):
        return found
    leaves = bisect.bisect_left(steps, True, key=lambda s: abs(at(s) - at(left)) > _NOISE * abs(at(left))) + left - 1
    comes = bisect.bisect_left(steps, True, key=lambda s: abs(at(s) - at(right)) <= _NOISE * abs(at(right))) + left
    if leaves - left > _PLATEAU * (comes - left):
        found.add(leaves)
    if right - comes > _PLATEAU * (right - leaves):
        found.add(comes)
    return found


def _grid(first: int, last: int) -> list[int]:
    """Returns steps spread over a stretch, denser at its beginning, because warm-ups are short."""
    parts = min(_GRID, max(last - first, 1))
    spread = (first + (last - first) * part // parts for part in range(parts + 1))
    doubling = (first + 2**power for power in range((last - first).bit_length()))
    return sorted({*spread, *doubling})
