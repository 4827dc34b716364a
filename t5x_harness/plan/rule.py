"""What a rule of plan is: it sees the full-size run in shapes, on the slice's mesh."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.resolve.rule import ConfigRule
from t5x_harness.spec import Finding, Stage

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


class PlanRule(ConfigRule):
    """A mistake that shows in the run's shapes, mesh, steps or checkpoints."""

    stage = Stage.PLAN

    @abc.abstractmethod
    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields what is wrong with a planned run."""
