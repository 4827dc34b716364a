"""Where every final value of a config comes from, and what it replaced."""

from __future__ import annotations

import sys

from t5x_harness.gin.program import Binding, GinProgram, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.spec import Assignment, BoundValue


def bound_values(program: GinProgram) -> tuple[BoundValue, ...]:
    """Returns every parameter and macro that a config binds, in the order in which they were first bound."""
    statements: dict[tuple[str, str, str], list[Binding | MacroBinding]] = {}
    for statement in program.statements:
        if isinstance(statement, (Binding, MacroBinding)):
            statements.setdefault(statement.key, []).append(statement)
    return tuple(_bound_value(of_one) for of_one in statements.values())


def _bound_value(statements: list[Binding | MacroBinding]) -> BoundValue:
    *overridden, winner = statements
    return BoundValue(
        name=str(winner),
        configurable=winner.target if isinstance(winner, Binding) else None,
        assignment=_assignment(winner),
        overridden=tuple(map(_assignment, overridden)),
    )


def _assignment(statement: Binding | MacroBinding) -> Assignment:
    return Assignment(format_value(statement.value, limit=sys.maxsize), statement.location)
