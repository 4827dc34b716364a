"""The rules of plan: they look at the full-size run in shapes, on the slice's mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Check, Mistake, Rule, rule_of
from t5x_harness.spec import Stage

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


def finds(mistake: Mistake) -> Callable[[Check[Planned]], Rule[Planned]]:
    """Turns a function into a rule; it finds a mistake in the run's shapes, mesh, steps or checkpoints."""
    return functools.partial(rule_of, mistake, Stage.PLAN)
