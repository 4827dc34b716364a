"""How many steps a run trains: from the checkpoint's step, or relative to it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t5x_harness.resolve.gin_config import BindingKey
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

__all__ = ["PlannedSteps", "planned_steps"]


@dataclasses.dataclass(frozen=True)
class PlannedSteps:
    """The steps of a training run.

    Attributes:
      key: the binding that holds the last step.
      first: the step that the run starts from: the checkpoint's, or 0.
      total: the step that it ends at; None where the config gives no whole number.
    """

    key: BindingKey
    first: int
    total: int | None

    @property
    def to_train(self) -> int:
        """Steps between the two; 0 where there are none."""
        return max(0, (self.total or 0) - self.first)


def planned_steps(plan: Planned) -> PlannedSteps | None:
    """The steps of a run; None for one that does not train."""
    config = plan.config
    if config.mode is not Mode.TRAIN:
        return None
    key = config.owner(BindingKey("", config.entry, "total_steps"))
    total = config.value(key)
    relative = config.value(config.owner(BindingKey("", config.entry, "relative_steps")))
    first = plan.start.step or 0
    if isinstance(relative, int) and relative:
        total = first + relative
    whole = isinstance(total, int) and not isinstance(total, bool)
    return PlannedSteps(key, first, total if whole else None)
