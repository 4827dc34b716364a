"""The steps that a run trains, and its learning rate over them, found by evaluating only a few steps."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from t5x import optimizers

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_source import StartPoint
from t5x_harness.spec import Mode


@dataclasses.dataclass(frozen=True)
class PlannedSteps:
    """The steps of a training run.

    Attributes:
      key: the binding that sets the number of steps.
      value: the bound value.
      relative: whether they are counted from the checkpoint's step.
      first: the step that the run starts from: the checkpoint's, or 0; None if the checkpoint's is not known.
    """

    key: BindingKey
    value: Any
    relative: bool
    first: int | None

    @property
    def is_whole(self) -> bool:
        """Whether the value is a valid number of steps."""
        return isinstance(self.value, int) and not isinstance(self.value, bool)

    @property
    def total(self) -> int | None:
        """The step at which the run ends; None if it is not known."""
        if not self.is_whole:
            return None
        if not self.relative:
            return int(self.value)
        return None if self.first is None else self.first + int(self.value)

    @property
    def to_train(self) -> int | None:
        """The number of steps that the run trains; None if it is not known."""
        if self.is_whole and self.relative:
            return int(self.value)
        return None if self.total is None or self.first is None else max(0, self.total - self.first)


def planned_steps(config: GinConfig, start: StartPoint) -> PlannedSteps | None:
    """Returns the steps of a run from its starting point on, or None if it does not train."""
    if config.mode is not Mode.TRAIN:
        return None
    first = start.step if start.path else 0
    relative = config.owner_of("relative_steps")
    if config.value(relative):  # as in T5X, total_steps applies if this is 0 or None
        return PlannedSteps(relative, config.value(relative), True, first)
    total = config.owner_of("total_steps")
    return PlannedSteps(total, config.value(total), False, first)


_GRID = 512
"""The number of steps to evaluate first; the exact steps of the turns between them are then searched."""
_NOISE = 1e-6
"""Relative changes that are below the precision of float32."""
_PLATEAU = 0.05
"""The share of a stretch that has to be flat before its end counts as a turn."""


@dataclasses.dataclass(frozen=True)
class RateCurve:
    """The course of a learning rate, given by the steps where it turns.

    Attributes:
      points: the steps and rates of the first step, every turn and the last step.
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
    """Returns the course of a rate from one step to another, both included.

    A change that comes and goes between two neighbors of the several hundred steps on the grid is not seen.

    Raises:
      Exception: the rate's function raises it.
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
        if direction * change >= 0 and abs(change) > 0:  # the same direction again, or the first change
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
    """Returns the steps where a monotonic stretch leaves its first rate and where it reaches its last rate."""
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


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """The learning rate of a run.

    Attributes:
      schedule: the schedule that sets the rate; None if the config does not specify it.
      curve: the course over the steps to train; None if the steps or the rate are not known.
      before: the course from step 0 to the first step to train; None if that is step 0.
      problem: the exception that the schedule raised, or None.
    """

    schedule: RateSchedule | None = None
    curve: RateCurve | None = None
    before: RateCurve | None = None
    problem: Exception | None = None

    @property
    def is_uncalled(self) -> bool:
        """Whether it raised because it is a function that makes schedules, and the config lacks the parentheses."""
        if self.problem is None or self.schedule is None:
            return False
        function = self.schedule.function
        try:
            return callable(getattr(function, "__wrapped__", function)())  # the function without jax.jit
        except Exception:  # it needs a step, or the user's code raises
            return False

    @property
    def unknown_factor(self) -> str | None:
        """The factor that T5X's own scheduler refused, if it refused one."""
        found = re.search(r"Unknown factor '?(\w*)", str(self.problem)) if self.problem is not None else None
        return found[1] if found else None


def learning_rate(config: GinConfig, model: Any, steps: PlannedSteps | None) -> LearningRate | None:
    """Evaluates the schedule of a run; returns None if the run does not train."""
    if steps is None:
        return None
    schedule = None
    try:
        schedule = find_schedule(config, model)
        if schedule is None:
            return LearningRate()
        schedule.rate(0)
        if steps.first is None or not steps.to_train:
            return LearningRate(schedule)
        if schedule.counts_updates and steps.first and not schedule.is_constant:
            return LearningRate(schedule)  # the count is the checkpoint's, or restarts at 0 without its optimizer state
        before = curve_of(schedule.rate, 0, steps.first) if steps.first else None
        curve = curve_of(schedule.rate, steps.first, steps.first + steps.to_train - 1)
        return LearningRate(schedule, curve, before)
    except Exception as error:  # the user's schedule may raise anything; plan reports it last
        return LearningRate(schedule, problem=error)


@dataclasses.dataclass(frozen=True)
class RateSchedule:
    """A learning rate by step.

    Attributes:
      key: the binding that sets the schedule.
      function: a function that returns the rate of a step.
      is_constant: whether it is the same number at every step.
      counts_updates: whether it counts the optimizer's own updates instead of train steps.
      optimizer: the name of the optimizer that follows it, such as ``Adafactor`` or ``adamw``.
    """

    key: BindingKey
    function: Callable[..., Any]
    is_constant: bool = False
    counts_updates: bool = False
    optimizer: str = ""

    def rate(self, step: int) -> float:
        """Returns the rate of a step's update.

        Raises:
          Exception: the schedule raises it; T5X runs into it when it traces the train step.
        """
        return float(np.asarray(self.function(np.int32(step))))


def find_schedule(config: GinConfig, model: Any) -> RateSchedule | None:
    """Returns the schedule that the optimizer follows, or None if the config does not specify it.

    T5X's own optimizers take the trainer's ``learning_rate_fn``. Optax's ignore it: their rate is an argument of one
    of their transformations.

    Raises:
      Exception: building the schedule raises it.
    """
    optimizer = getattr(model, "optimizer_def", None)
    of_optax = isinstance(optimizer, optimizers.OptaxWrapper)
    if isinstance(optimizer, optimizers.MultiOptimizer):
        return None  # each of its optimizers may have its own rate
    if of_optax:
        bound = [key for key in config if key.parameter == "learning_rate"]
        key = bound[0] if len(bound) == 1 else None
    else:
        key = config.find("learning_rate_fn", scope=config.scope_of("trainer_cls") or "")
    value = copy.deepcopy(config.value(key)) if key else None  # copying makes gin resolve references
    name = key.selector.rpartition(".")[2] if key and of_optax else type(optimizer).__name__
    if key and isinstance(value, int | float):
        return RateSchedule(config.owner(key), lambda step: value, True, of_optax, name)
    return RateSchedule(key, jax.jit(value), False, of_optax, name) if key and callable(value) else None
