"""The parameters of the next trial.

The service's default algorithm is Bayesian optimisation, of which it tells no more. Here the default is a small one of
its kind: it looks where past trials were good, and where there were none. Suggestions are the same each time for the
same study and the same results.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence

from t5x_harness.google.vertex.jobs.tuning.space import Parameter, Value, assign, grid

# StudySpec.Algorithm
_GRID, _RANDOM = 2, 3
_CANDIDATES = 128
_RANDOM_TRIALS = 3
# How far, of the way through a parameter, what is known of a place says something of another.
_WIDTH = 0.2


@dataclasses.dataclass(frozen=True)
class Past:
    """A trial that was suggested.

    Attributes:
      score: how good it was, larger for better; None if it has not ended, or ended without a metric.
    """

    parameters: Mapping[str, Value]
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class Suggestions:
    """Suggests parameters.

    Attributes:
      parameters: what there is to choose.
    """

    parameters: tuple[Parameter, ...]
    algorithm: int
    seed: str

    def next(self, past: Sequence[Past]) -> Mapping[str, Value] | None:
        """The parameters of the trial after those that were suggested; None if there is nothing left to try.

        Args:
          past: all that were suggested, in order.
        """
        if self.algorithm == _GRID:
            return next(itertools.islice(grid(self.parameters), len(past), None), None)
        source = random.Random(f"{self.seed}/{len(past)}")
        if self.algorithm == _RANDOM:
            return self._random(source)
        if not past:
            return assign(self.parameters, lambda parameter: parameter.at(0.5))
        scored = [each for each in past if each.score is not None]
        if len(scored) < _RANDOM_TRIALS:
            return self._random(source)
        candidates = [self._random(source) for _ in range(_CANDIDATES)]
        known = [each.parameters for each in past]
        return max([each for each in candidates if each not in known] or candidates, key=lambda c: self._hope(c, past))

    def _random(self, source: random.Random) -> dict[str, Value]:
        return assign(self.parameters, lambda parameter: parameter.at(source.random()))

    def _hope(self, candidate: Mapping[str, Value], past: Sequence[Past]) -> float:
        """How good a candidate may be: what its neighbours were, and a bonus where there are few."""
        scores = [each.score for each in past if each.score is not None]
        low, high = min(scores), max(scores)
        near = total = 0.0
        for each in past:
            weight = math.exp(-((self._distance(candidate, each.parameters) / _WIDTH) ** 2))
            near += weight
            # One that still runs counts as a middling one: another is to be tried elsewhere.
            total += weight * (0.5 if each.score is None or high == low else (each.score - low) / (high - low))
        return (total + 0.5) / (near + 1) + 0.5 / math.sqrt(1 + near)

    def _distance(self, one: Mapping[str, Value], other: Mapping[str, Value]) -> float:
        squares = 0.0
        for parameter in _all(self.parameters):
            if parameter.name in one and parameter.name in other:
                squares += (parameter.place(one[parameter.name]) - parameter.place(other[parameter.name])) ** 2
            elif parameter.name in one or parameter.name in other:
                squares += 1.0
        return math.sqrt(squares)


def _all(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Parameters with those that depend on them; of several with a name, the first."""
    found: dict[str, Parameter] = {}
    for parameter in parameters:
        for each in (parameter, *_all([below for _, below in parameter.conditional])):
            found.setdefault(each.name, each)
    return list(found.values())
