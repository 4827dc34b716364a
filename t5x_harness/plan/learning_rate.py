"""What the learning rate is over the steps that a run trains, and over those before it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from t5x_harness.plan.course import Course
from t5x_harness.plan.schedule import Schedule, find_schedule
from t5x_harness.plan.steps import PlannedSteps
from t5x_harness.resolve.gin_config import GinConfig


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """The learning rate of a run.

    Attributes:
      schedule: where it comes from; None where the config does not tell.
      course: its way over the steps to train; None where these or the rate are not known.
      before: its way from step 0 to the first step to train; None where there are none.
      problem: what the schedule raised.
      is_uncalled: whether that is for want of a call: the function makes schedules.
    """

    schedule: Schedule | None = None
    course: Course | None = None
    before: Course | None = None
    problem: Exception | None = None
    is_uncalled: bool = False

    @property
    def unknown_factor(self) -> str | None:
        """The factor that T5X's own scheduler refused; None if it refused none."""
        found = re.search(r"Unknown factor '?(\w*)", str(self.problem)) if self.problem is not None else None
        return found[1] if found else None


def learning_rate(config: GinConfig, model: Any, steps: PlannedSteps | None) -> LearningRate | None:
    """Evaluates the schedule of a run; None for one that does not train."""
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
        before = schedule.course(0, steps.first) if steps.first else None
        return LearningRate(schedule, schedule.course(steps.first, steps.first + steps.to_train - 1), before)
    except Exception as error:  # whatever the user's schedule raises; plan tells it when it has told all else
        return LearningRate(schedule, problem=error, is_uncalled=schedule is not None and schedule.makes_schedules)
