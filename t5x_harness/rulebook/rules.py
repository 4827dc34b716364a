"""The rules of all stages."""

from __future__ import annotations

import t5x_harness.aot.rules
import t5x_harness.lint.rules
import t5x_harness.plan.rules
import t5x_harness.resolve.rules  # noqa: F401  importing them registers them
from t5x_harness.findings.rule import Mistake
from t5x_harness.spec import Stage


def all_mistakes(*stages: Stage) -> tuple[type[Mistake], ...]:
    """Returns every mistake of these stages, or of all, in the order of stages and codes."""
    return tuple(rule for stage in stages or Stage for rule in Mistake.registered(stage))


def all_codes() -> tuple[str, ...]:
    """Returns the codes of every mistake, sorted, each once: one mistake may be found at several stages."""
    return tuple(sorted({mistake.code for mistake in all_mistakes()}))
