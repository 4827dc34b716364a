"""What a study searches, and the parameters of the next trial.

The service's default algorithm is Bayesian optimisation, of which it tells no more. Here the default is a small one of
its kind: it looks where past trials were good, and where there were none. Suggestions are the same each time for the
same study and the same results.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

Value = float | int | str

# StudySpec.ParameterSpec.ScaleType
_LOG, _REVERSE_LOG = 2, 3
# The epsilon of the API for values that a condition names.
_EPSILON = 1e-10


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter.

    Attributes:
      choices: its values; empty for a range.
      low: the least value of a range.
      high: the largest one.
      whole: whether the values of a range are integers.
      scale: of the API.
      conditional: parameters that are asked for where this one has certain values, with these.
    """

    name: str
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: int = 0
    conditional: tuple[tuple[tuple[Value, ...], Parameter], ...] = ()

    @classmethod
    def of(cls, spec: Any) -> Self:
        kind = spec.WhichOneof("parameter_value_spec")
        values = getattr(spec, kind)
        conditional = tuple(
            (_condition(each), cls.of(each.parameter_spec)) for each in spec.conditional_parameter_specs
        )
        if kind in ("categorical_value_spec", "discrete_value_spec"):
            return cls(spec.parameter_id, tuple(values.values), scale=spec.scale_type, conditional=conditional)
        whole = kind == "integer_value_spec"
        return cls(
            spec.parameter_id, (), values.min_value, values.max_value, whole, spec.scale_type, conditional=conditional
        )

    def at(self, place: float) -> Value:
        """Returns the value at a place between 0 and 1, where values that are as far apart on its scale are as likely.

        Args:
          place: at least 0 and less than 1.
        """
        if self.choices:
            return self.choices[int(place * len(self.choices))]
        if not self.whole:
            return min(max(self._scaled(place, self.low, self.high), self.low), self.high)
        # Each integer stands for what rounds to it.
        low, high = (self.low, self.high) if self.scale in (_LOG, _REVERSE_LOG) else (self.low - 0.5, self.high + 0.5)
        return int(min(max(math.floor(self._scaled(place, low, high) + 0.5), self.low), self.high))

    def place(self, value: Value) -> float:
        """Returns where between 0 and 1 a value is; of choices, the middle of its part."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices)
        if self.high == self.low:
            return 0.5
        number = float(value)
        if self.scale == _LOG:
            return math.log(number / self.low) / math.log(self.high / self.low)
        if self.scale == _REVERSE_LOG:
            return 1 - math.log((self.high + self.low - number) / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def values(self) -> tuple[Value, ...]:
        """Returns all values; the API takes no grid over a range of doubles."""
        return self.choices or tuple(range(int(self.low), int(self.high) + 1))

    def asks_for(self, value: Value) -> Iterator[Parameter]:
        """Yields the parameters that are asked for where this one has a value."""
        for values, parameter in self.conditional:
            if any(_same(value, each) for each in values):
                yield parameter

    def _scaled(self, place: float, low: float, high: float) -> float:
        if self.scale == _LOG:
            return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        if self.scale == _REVERSE_LOG:
            return high + low - math.exp(math.log(high) - place * (math.log(high) - math.log(low)))
        return low + place * (high - low)


def parameters_of(study_spec: Any) -> tuple[Parameter, ...]:
    """Returns the parameters of a ``StudySpec``; those that depend on others are in these."""
    return tuple(Parameter.of(each) for each in study_spec.parameters)


def assign(parameters: Sequence[Parameter], choose: Callable[[Parameter], Value]) -> dict[str, Value]:
    """Returns a value for each parameter that is asked for, by name."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        value = found[parameter.name] = choose(parameter)
        found |= assign(tuple(parameter.asks_for(value)), choose)
    return found


def grid(parameters: Sequence[Parameter]) -> Iterator[Mapping[str, Value]]:
    """Yields all assignments, the last parameter's values changing fastest."""
    if not parameters:
        yield {}
        return
    first, *rest = parameters
    for value in first.values():
        for below in grid((*first.asks_for(value), *rest)):
            yield {first.name: value, **below}


def _condition(spec: Any) -> tuple[Value, ...]:
    kind = spec.WhichOneof("parent_value_condition")
    return tuple(getattr(spec, kind).values) if kind else ()


def _same(value: Value, other: Value) -> bool:
    if isinstance(value, str) or isinstance(other, str):
        return value == other
    return abs(value - other) <= _EPSILON


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
        """Returns the parameters of the trial after those that were suggested; None if there is nothing left to try.

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
        """Returns how good a candidate may be: what its neighbours were, and a bonus where there are few."""
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
