"""GIN04: bindings above the include, or in front of the gin file of T5X's, that overrides them."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.moves import move_below
from t5x_harness.lint.program import BINDINGS, Binding, GinProgram, MacroBinding, Statement
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.values import format_value, is_required, same_value
from t5x_harness.spec import Edit, Finding, Location, Severity


class OverriddenByInclude(Rule):
    """A value that an include further down replaces, or one of T5X's own files that is given later."""

    code = "GIN04"
    severity = Severity.WARNING
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
            if same_value(statement.value, winner.value):
                continue
            include = _include_below(statement.location, winner.location)
            if (later := _later_file_of_t5x(context.program, statement, winner)) is not None:
                yield self.finding(
                    f"{statement} = {format_value(statement.value)} is lost: {later}, which is given after "
                    f"{context.program.named_file(statement.location)}, sets it to {format_value(winner.value)} "
                    f"({winner.location})",
                    statement,
                    f"give {context.program.named_file(statement.location)} after {later}",
                )
            elif include is not None:
                yield self.finding(
                    f"{statement} = {format_value(statement.value)} is lost: the include in line {include.line} "
                    f"sets it to {format_value(winner.value)} ({winner.location})",
                    statement,
                    f"move the binding below line {include.line}",
                    edits=_moved(context.program, statement, include),
                )


def _later_file_of_t5x(program: GinProgram, early: Statement, late: Statement) -> str | None:
    """The file of T5X's own, named after the user's file that holds ``early``, through which ``late`` was read.

    A user's file that overrides another is what files are given in turn for; T5X's defaults are to be overridden.
    """
    later = program.named_file(late.location)
    if later in (BINDINGS, program.named_file(early.location)):
        return None
    return later if program.is_of_t5x(later) and not program.is_of_t5x(early.location.file) else None


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
