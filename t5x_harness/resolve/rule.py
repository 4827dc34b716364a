"""The rules of resolve: they look at the built objects of a run and a sample of its data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Check, Mistake, Rule, rule_of
from t5x_harness.spec import Stage

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved


def finds(mistake: Mistake) -> Callable[[Check[Resolved]], Rule[Resolved]]:
    """Turns a function into a rule; it finds a mistake in the objects behind the bindings, or in the data."""
    return functools.partial(rule_of, mistake, Stage.RESOLVE)
