"""How many steps a run trains, counted from step 0 or from the checkpoint's step."""

from __future__ import annotations

import dataclasses
from typing import Any

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_source import StartPoint
from t5x_harness.spec import Mode


@dataclasses.dataclass(frozen=True)
class PlannedSteps:
    """The steps of a training run.

    Attributes:
      key: the binding that they come from.
      value: what is bound there.
      relative: whether they are counted from the checkpoint's step.
      first: the step that the run starts from: the checkpoint's, or 0; None if the checkpoint's is not known.
    """

    key: BindingKey
    value: Any
    relative: bool
    first: int | None

    @property
    def is_whole(self) -> bool:
        """Whether the value is a number of steps at all."""
        return isinstance(self.value, int) and not isinstance(self.value, bool)

    @property
    def total(self) -> int | None:
        """The step that the run ends at; None if it is not known."""
        if not self.is_whole:
            return None
        if not self.relative:
            return int(self.value)
        return None if self.first is None else self.first + int(self.value)

    @property
    def to_train(self) -> int | None:
        """How many steps the run trains; None if it is not known."""
        if self.is_whole and self.relative:
            return int(self.value)
        return None if self.total is None or self.first is None else max(0, self.total - self.first)


def planned_steps(config: GinConfig, start: StartPoint) -> PlannedSteps | None:
    """Returns the steps of a run from its starting point on, or None if it does not train."""
    if config.mode is not Mode.TRAIN:
        return None
    first = start.step if start.path else 0
    relative = config.owner_of("relative_steps")
    if config.value(relative):  # as in T5X, 0 and None leave it to total_steps
        return PlannedSteps(relative, config.value(relative), True, first)
    total = config.owner_of("total_steps")
    return PlannedSteps(total, config.value(total), False, first)
