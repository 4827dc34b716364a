"""The learning rate that a run trains with, found by evaluating the schedule that its config binds."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from t5x import optimizers

from t5x_harness.plan.course import Course, course_of
from t5x_harness.resolve.gin_config import BindingKey, GinConfig


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate by step.

    Attributes:
      key: the binding that it comes from.
      function: from a step to the rate.
      is_constant: whether it is a number that no step changes.
      counts_updates: whether it goes by the optimizer's own count of its updates, and not by the train step.
      optimizer: the name of the optimizer that follows it, such as ``Adafactor`` or ``adamw``.
    """

    key: BindingKey
    function: Callable[..., Any]
    is_constant: bool = False
    counts_updates: bool = False
    optimizer: str = ""

    @property
    def makes_schedules(self) -> bool:
        """Whether the function is none of a step, but one that makes such functions: a reference without a call."""
        try:
            return callable(getattr(self.function, "__wrapped__", self.function)())  # as it was before jax.jit
        except Exception:  # it takes a step, or is the user's and raises whatever it likes
            return False

    def rate(self, step: int) -> float:
        """The rate that the update of a step is made with.

        Raises:
          Exception: what the schedule raises, which T5X meets while it traces the train step.
        """
        return float(np.asarray(self.function(np.int32(step))))

    def course(self, first: int, last: int) -> Course:
        """How the rate goes from one step to another, both included.

        Raises:
          Exception: what the schedule raises.
        """
        return course_of(self.rate, first, last)


def find_schedule(config: GinConfig, model: Any) -> Schedule | None:
    """The schedule that the optimizer follows; None where it cannot be told from the config.

    T5X's own optimizers take the trainer's ``learning_rate_fn``.  Those of optax do not look at it: their rate is an
    argument of one of their transformations.

    Raises:
      Exception: what building it raises.
    """
    optimizer = getattr(model, "optimizer_def", None)
    of_optax = isinstance(optimizer, optimizers.OptaxWrapper)
    if isinstance(optimizer, optimizers.MultiOptimizer):
        return None  # each part may have a rate of its own
    if of_optax:
        bound = [key for key, _ in config.items() if key.parameter == "learning_rate"]
        key = bound[0] if len(bound) == 1 else None
    else:
        key = config.find("learning_rate_fn", scope=config.scope_of("trainer_cls") or "")
    value = copy.deepcopy(config.value(key)) if key else None  # this is how gin resolves references
    name = key.selector.rpartition(".")[2] if key and of_optax else type(optimizer).__name__
    if key and isinstance(value, int | float):
        return Schedule(config.owner(key), lambda step: value, True, of_optax, name)
    return Schedule(key, jax.jit(value), False, of_optax, name) if key and callable(value) else None
