"""The learning rate over the steps that a run trains, and over the steps before."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from t5x import optimizers

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.rate_curve import RateCurve, curve_of
from t5x_harness.plan.steps import PlannedSteps


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """The learning rate of a run.

    Attributes:
      schedule: where it comes from; None if the config does not say.
      curve: how it changes over the steps to train; None if the steps or the rate are not known.
      before: how it changes from step 0 to the first step to train; None if that is step 0.
      problem: what the schedule raised.
      is_uncalled: whether it raised because it is a function that makes schedules and was not called.
    """

    schedule: RateSchedule | None = None
    curve: RateCurve | None = None
    before: RateCurve | None = None
    problem: Exception | None = None
    is_uncalled: bool = False

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
            return LearningRate(schedule)  # the count is the checkpoint's, or begins anew without its optimizer state
        before = schedule.curve(0, steps.first) if steps.first else None
        return LearningRate(schedule, schedule.curve(steps.first, steps.first + steps.to_train - 1), before)
    except Exception as error:  # whatever the user's schedule raises; plan reports it after all else
        return LearningRate(schedule, problem=error, is_uncalled=schedule is not None and schedule.makes_schedules)


@dataclasses.dataclass(frozen=True)
class RateSchedule:
    """A learning rate by step.

    Attributes:
      key: the binding that it comes from.
      function: returns the rate of a step.
      is_constant: whether it is the same number at every step.
      counts_updates: whether it counts the optimizer's own updates, and not the train steps.
      optimizer: the name of the optimizer that follows it, such as ``Adafactor`` or ``adamw``.
    """

    key: BindingKey
    function: Callable[..., Any]
    is_constant: bool = False
    counts_updates: bool = False
    optimizer: str = ""

    @property
    def makes_schedules(self) -> bool:
        """Whether the function makes schedules and is not one itself: the config lacks the parentheses of a call."""
        try:
            return callable(getattr(self.function, "__wrapped__", self.function)())  # as it was before jax.jit
        except Exception:  # it takes a step, or the user's code raises
            return False

    def rate(self, step: int) -> float:
        """Returns the rate of a step's update.

        Raises:
          Exception: what the schedule raises; T5X meets it when it traces the train step.
        """
        return float(np.asarray(self.function(np.int32(step))))

    def curve(self, first: int, last: int) -> RateCurve:
        """Returns how the rate changes from one step to another, both included.

        Raises:
          Exception: what the schedule raises.
        """
        return curve_of(self.rate, first, last)


def find_schedule(config: GinConfig, model: Any) -> RateSchedule | None:
    """Returns the schedule that the optimizer follows, or None if the config does not say.

    T5X's own optimizers take the trainer's ``learning_rate_fn``.  Optax's ignore it: their rate is an argument of one
    of their transformations.

    Raises:
      Exception: what building it raises.
    """
    optimizer = getattr(model, "optimizer_def", None)
    of_optax = isinstance(optimizer, optimizers.OptaxWrapper)
    if isinstance(optimizer, optimizers.MultiOptimizer):
        return None  # each of its optimizers may have a rate of its own
    if of_optax:
        bound = [key for key in config if key.parameter == "learning_rate"]
        key = bound[0] if len(bound) == 1 else None
    else:
        key = config.find("learning_rate_fn", scope=config.scope_of("trainer_cls") or "")
    value = copy.deepcopy(config.value(key)) if key else None  # this is how gin resolves references
    name = key.selector.rpartition(".")[2] if key and of_optax else type(optimizer).__name__
    if key and isinstance(value, int | float):
        return RateSchedule(config.owner(key), lambda step: value, True, of_optax, name)
    return RateSchedule(key, jax.jit(value), False, of_optax, name) if key and callable(value) else None
