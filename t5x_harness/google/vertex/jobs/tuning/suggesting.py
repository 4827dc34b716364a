"""What a study searches, and the parameters of its trials: a grid, or values at random.

The service's default algorithm is Bayesian optimization. Here it draws at random as well, and the job's log says so.
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
# StudySpec.Algorithm
DEFAULT, _GRID = 0, 2
# The epsilon of the API for values that a condition names.
_EPSILON = 1e-10


@dataclasses.dataclass(frozen=True)
class TunedParameter:
    """A parameter of a study.

    Attributes:
      choices: its values; empty for a range.
      low: the least value of a range.
      high: the largest value of a range.
      whole: whether the values of a range are integers.
      scale: the number of the API's scale type.
      conditional: parameters that are active only if this one has certain values, each with these values.
    """

    name: str
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: int = 0
    conditional: tuple[tuple[tuple[Value, ...], TunedParameter], ...] = ()

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
        """Returns the value at a place on the parameter's scale.

        Args:
          place: at least 0 and less than 1. Uniform places give values that are uniform on the scale.
        """
        if self.choices:
            return self.choices[int(place * len(self.choices))]
        if not self.whole:
            return min(max(self._scaled(place, self.low, self.high), self.low), self.high)
        # Each integer stands for the numbers that round to it.
        low, high = (self.low, self.high) if self.scale in (_LOG, _REVERSE_LOG) else (self.low - 0.5, self.high + 0.5)
        return int(min(max(math.floor(self._scaled(place, low, high) + 0.5), self.low), self.high))

    def values(self) -> tuple[Value, ...]:
        """Returns all values. The API accepts no grid over a range of doubles."""
        return self.choices or tuple(range(int(self.low), int(self.high) + 1))

    def active_with(self, value: Value) -> Iterator[TunedParameter]:
        """Yields the parameters that are active if this one has a value."""
        for values, parameter in self.conditional:
            if any(_same(value, each) for each in values):
                yield parameter

    def _scaled(self, place: float, low: float, high: float) -> float:
        if self.scale == _LOG:
            return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        if self.scale == _REVERSE_LOG:
            return high + low - math.exp(math.log(high) - place * (math.log(high) - math.log(low)))
        return low + place * (high - low)


def parameters_of(study_spec: Any) -> tuple[TunedParameter, ...]:
    """Returns the parameters of a ``StudySpec``; parameters that depend on others are part of them."""
    return tuple(TunedParameter.of(each) for each in study_spec.parameters)


def assign(parameters: Sequence[TunedParameter], choose: Callable[[TunedParameter], Value]) -> dict[str, Value]:
    """Returns a value for each active parameter, by name."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        value = found[parameter.name] = choose(parameter)
        found |= assign(tuple(parameter.active_with(value)), choose)
    return found


def grid(parameters: Sequence[TunedParameter]) -> Iterator[Mapping[str, Value]]:
    """Yields all assignments; the last parameter's values change fastest."""
    if not parameters:
        yield {}
        return
    first, *rest = parameters
    for value in first.values():
        for below in grid((*first.active_with(value), *rest)):
            yield {first.name: value, **below}


def suggest(parameters: Sequence[TunedParameter], algorithm: int, seed: str, number: int) -> Mapping[str, Value] | None:
    """Returns the parameters of a trial, which are the same each time for the same study.

    Args:
      algorithm: of the API.
      seed: what the values at random depend on.
      number: how many trials there were before.

    Returns:
      None if the grid has no more.
    """
    if algorithm == _GRID:
        return next(itertools.islice(grid(parameters), number, None), None)
    source = random.Random(f"{seed}/{number}")
    return assign(parameters, lambda parameter: parameter.at(source.random()))


def _condition(spec: Any) -> tuple[Value, ...]:
    kind = spec.WhichOneof("parent_value_condition")
    return tuple(getattr(spec, kind).values) if kind else ()


def _same(value: Value, other: Value) -> bool:
    if isinstance(value, str) or isinstance(other, str):
        return value == other
    return abs(value - other) <= _EPSILON
