"""GIN04 and GIN34: values that a later include or file undoes, and those that one file binds twice."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import BINDINGS, ENTRIES, Binding, GinProgram, MacroBinding
from t5x_harness.gin.values import format_value, is_required, same_value
from t5x_harness.lint.moves import move_below
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Edit, Location, Severity

GIN04 = Mistake(
    "GIN04",
    "binding above the include that overrides it",
    severity=Severity.WARNING,
    why=(
        "An include is as if its text stood there, and the last statement wins: what is bound above it is lost, "
        "without a word from Gin. So are values of one included file that the next one sets, too, and those of a file "
        "that is given before the run's own."
    ),
    bad=Example(
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\nBATCH_SIZE = 7\ninclude 't5x/configs/runs/pretrain.gin'\n",
        at="BATCH_SIZE",
    ),
    good=Example(examples.head("pretrain") + "BATCH_SIZE = 7\n"),
)


@finds(GIN04)
def overridden_by_include(context: Context) -> Iterator[Found]:
    """Finds each binding whose value an include or a later file replaces with another."""
    program = context.program
    for statement in program.statements:
        if not isinstance(statement, (Binding, MacroBinding)) or is_required(statement.value):
            continue
        winner = program.final[statement.key]
        if same_value(statement.value, winner.value) or program.is_foreign(statement.location.file):
            continue
        if (undoing := _undoing(program, statement, winner)) is None:
            continue
        what, fix, include, severity = undoing
        yield Found(
            f"{statement} = {format_value(statement.value)} is lost: {what} sets it to "
            f"{format_value(winner.value)} ({winner.location})",
            statement,
            fix,
            severity=severity,
            edits=_moved(program, statement, include) if include is not None else (),
        )


def _undoing(
    program: GinProgram, early: Binding | MacroBinding, late: Binding | MacroBinding
) -> tuple[str, str, Location | None, Severity] | None:
    """Returns what undoes a value, the fix, the include to move it below, and the severity; None if it is intended.

    A file may override another one's value if it includes that file or is given after it. A default of T5X's, a whole
    run that comes after the value, and a statement that is read a second time are no overrides. If two includes of one
    file disagree about a macro, they may be layers, which is worth a note.
    """
    before, after = _chain(early.location), _chain(late.location)
    depth = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if depth is None or late.location.file == BINDINGS:
        return None
    one, other = before[depth], after[depth]
    again = _was_read_before(program, late, early)
    is_default = again or program.is_foreign(late.location.file)
    read_again = f", or do not include {late.location.file} again" if again else ""
    if one.file != other.file:
        first, then = one.file, other.file
        if not is_default and not (_starts(program, then) and not _starts(program, first)):
            return None
        return (
            f"{then}, which is given after {first}{f' and includes {late.location.file} again' if again else ''},",
            f"give {first} after {then}{read_again}",
            None,
            Severity.WARNING,
        )
    if other.line <= one.line or len(after) == depth + 1:
        return None  # bound again in the same file: GIN34
    if len(before) == depth + 1:
        return f"the include in line {other.line}", f"move the binding below line {other.line}", other, Severity.WARNING
    name = f"{after[depth + 1].file}, which {other} includes after {before[depth + 1].file},"
    if is_default:
        fix = f"include {before[depth + 1].file} after {after[depth + 1].file}{read_again}"
        return name, fix, None, Severity.WARNING
    if not isinstance(early, MacroBinding):
        return None
    return name, f"bind {early} in one of the two, or below line {other.line} of {other.file}", None, Severity.NOTE


def _was_read_before(program: GinProgram, late: Binding | MacroBinding, early: Binding | MacroBinding) -> bool:
    """Returns whether a statement was executed before another one, too, by an earlier include of its file."""
    for statement in program.statements:
        if statement is early:
            return False
        at, there = statement.location, late.location
        is_same = isinstance(statement, (Binding, MacroBinding)) and statement.key == late.key
        if is_same and (at.file, at.line) == (there.file, there.line):
            return True
    return False


def _chain(place: Location) -> tuple[Location, ...]:
    """Returns the include statements that lead to a place, and the place itself."""
    return (*place.included_from, Location(place.file, place.line))


def _starts(program: GinProgram, named: str) -> bool:
    """Returns whether a file that the user named is the run: it brings the function that T5X calls."""
    return any(b.target in ENTRIES and program.named_file(b.location) == named for b in program.bindings)


def _moved(program: GinProgram, statement: Binding | MacroBinding, include: Location) -> tuple[Edit, ...]:
    """Moves a binding below an include, unless another one between the two replaces it anyway."""
    here = statement.location
    for other in program.statements:
        place = other.location
        replaces = isinstance(other, (Binding, MacroBinding)) and other.key == statement.key
        if replaces and place.file == here.file and here.line < place.line < include.line:
            return ()
    return move_below(program, here, include.line)


GIN34 = Mistake(
    "GIN34",
    "bound twice in one file",
    severity=Severity.WARNING,
    why="The last binding wins silently: the first one is there for readers only, and misleads them.",
    bad=Example(
        examples.head("pretrain") + "BATCH_SIZE = 8\nEVAL_PERIOD = 100\nBATCH_SIZE = 16\n", at="BATCH_SIZE = 8"
    ),
    good=Example(examples.head("pretrain") + "BATCH_SIZE = 16\nEVAL_PERIOD = 100\n"),
)


@finds(GIN34)
def bound_twice(context: Context) -> Iterator[Found]:
    """Finds each value that one file binds twice: a note if both values are the same."""
    again: dict[object, Binding | MacroBinding] = {}
    for statement in reversed(context.program.statements):
        if not isinstance(statement, (Binding, MacroBinding)) or statement.location.file == BINDINGS:
            continue
        place = statement.location
        key = (statement.key, place.file, place.included_from)
        later = again.get(key)
        again[key] = statement
        if later is None or is_required(statement.value) or context.program.is_foreign(place.file):
            continue
        same = same_value(statement.value, later.value)
        second = "the same" if same else format_value(later.value)
        line = later.location.line
        yield Found(
            f"{statement} = {format_value(statement.value)} is bound again in line {line}, to {second}",
            statement,
            "remove one of the two",
            severity=Severity.NOTE if same else Severity.WARNING,
        )
