"""The rules of all stages."""

import t5x_harness.aot.rules
import t5x_harness.lint.rules
import t5x_harness.plan.rules
import t5x_harness.resolve.rules
from t5x_harness.findings.rule import Rule
from t5x_harness.spec import Stage


def all_rules(*stages: Stage) -> tuple[Rule, ...]:
    """Returns every rule of these stages, or of all stages, in the order of stages and codes."""
    rooms = (t5x_harness.lint, t5x_harness.resolve, t5x_harness.plan, t5x_harness.aot)
    return tuple(rule for room in rooms for rule in room.rules.RULES if not stages or rule.stage in stages)


def all_codes() -> tuple[str, ...]:
    """Returns the codes of all mistakes, sorted, each once even if several stages find the mistake."""
    return tuple(sorted({rule.code for rule in all_rules()}))
