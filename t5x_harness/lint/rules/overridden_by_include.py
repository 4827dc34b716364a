"""GIN04: bindings above the include that overrides them."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.moves import move_below
from t5x_harness.lint.program import Binding, GinProgram, MacroBinding
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.values import format_value, is_required, same_value
from t5x_harness.spec import Edit, Finding, Location


class OverriddenByInclude(Rule):
    """A value that an include further down replaces."""

    code = "GIN04"
    title = "binding above the include that overrides it"
    why = (
        "An include is as if its text stood there, and the last statement wins: what is bound above it is lost, "
        "without a word from Gin."
    )
    bad = Example(
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\nBATCH_SIZE = 7\ninclude 't5x/configs/runs/pretrain.gin'\n",
        at="BATCH_SIZE",
    )
    good = Example(
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/pretrain.gin'\nBATCH_SIZE = 7\n"
    )

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each binding that is lost so and had another value."""
        for statement in context.program.statements:
            if not isinstance(statement, (Binding, MacroBinding)) or is_required(statement.value):
                continue
            winner = context.program.final[statement.key]
            include = _include_below(statement.location, winner.location)
            if include is not None and not same_value(statement.value, winner.value):
                yield self.finding(
                    f"{statement} = {format_value(statement.value)} is lost: the include in line {include.line} "
                    f"sets it to {format_value(winner.value)} ({winner.location})",
                    statement,
                    f"move the binding below line {include.line}",
                    edits=_moved(context.program, statement, include),
                )


def _moved(program: GinProgram, statement: Binding | MacroBinding, include: Location) -> tuple[Edit, ...]:
    """Moves a binding below an include, unless another one between the two replaces it anyway."""
    here = statement.location
    for other in program.statements:
        place = other.location
        replaces = isinstance(other, (Binding, MacroBinding)) and other.key == statement.key
        if replaces and place.file == here.file and here.line < place.line < include.line:
            return ()
    return move_below(program, here, include.line)


def _include_below(early: Location, late: Location) -> Location | None:
    """The include statement in the same file, below ``early``, through which ``late`` was read."""
    depth = len(early.included_from)
    if len(late.included_from) <= depth or late.included_from[:depth] != early.included_from:
        return None
    include = late.included_from[depth]
    return include if include.file == early.file and include.line > early.line else None
