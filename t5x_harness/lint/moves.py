"""Edits that put whole lines elsewhere in a gin file: imports, and bindings that stand above an include."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from t5x_harness.gin import parsing
from t5x_harness.gin.program import GinProgram
from t5x_harness.lint.statement_text import StatementText, lines_of, statement_at
from t5x_harness.spec import Edit, Location

REGISTRATION = "from __gin__ import dynamic_registration"
"""The statement that lets a file name whatever it imports."""

Edits = tuple[Edit, ...]


def move_below(program: GinProgram, at: Location, include: int) -> Edits:
    """Moves a binding below the include in line ``include``, with the comment that is about it alone."""
    statement = statement_at(program, at)
    target = statement_at(program, Location(at.file, include))
    if statement is None or target is None or statement.is_indented:
        return ()
    lines = lines_of(program, at.file)
    first = _first_of_paragraph(lines, statement)
    moved = lines[first - 1 : statement.last]
    gap = _is_blank(lines, first - 1) and _is_blank(lines, statement.last + 1)  # one blank line is enough
    return Edit(at.file, first, statement.last + gap, ""), _insert(at.file, target.last + 1, moved)


def raise_registration(program: GinProgram, at: Location) -> Edits:
    """Moves the switch to dynamic registration above the first import of its file."""
    statement = statement_at(program, at)
    imports = _imports(program, at.file)
    if statement is None or not imports or imports[0].line >= at.line:
        return ()
    return _insert(at.file, imports[0].line, statement.lines), Edit(at.file, statement.first, statement.last, "")


def remove(program: GinProgram, at: Location) -> Edits:
    """Takes a statement out of its file."""
    statement = statement_at(program, at)
    return () if statement is None else (Edit(at.file, statement.first, statement.last, ""),)


def add_import(program: GinProgram, at: Location, statement: str) -> Edits:
    """Adds an import to a file under dynamic registration, below the imports that stand above its first use ``at``."""
    above = [i for i in _imports(program, at.file) if i.line < at.line]
    last = statement_at(program, Location(at.file, above[-1].line)) if above else None
    return () if last is None else (_insert(at.file, last.last + 1, [statement]),)


def begin_with(program: GinProgram, file: str, statements: Iterable[str]) -> Edits:
    """Puts statements in front of all others of a file, below the comment that heads the file."""
    lines = lines_of(program, file)
    if not lines:
        return ()
    first = next((n for n, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")), len(lines))
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1  # a comment right above the first statement is about that
    return (_insert(file, first, list(statements)),)


def _imports(program: GinProgram, file: str) -> list[parsing.RawImport]:
    statements, _ = parsing.parse("\n".join(lines_of(program, file)))
    return [statement for statement in statements if isinstance(statement, parsing.RawImport)]


def _insert(file: str, line: int, lines: Sequence[str]) -> Edit:
    return Edit(file, line, line - 1, "".join(f"{text}\n" for text in lines))


def _is_blank(lines: Sequence[str], number: int) -> bool:
    """Returns whether there is a line of this number, and nothing on it."""
    return 1 <= number <= len(lines) and not lines[number - 1].strip()


def _first_of_paragraph(lines: Sequence[str], statement: StatementText) -> int:
    """Returns the line where the comment right above a statement begins, if it can be about nothing else."""
    below = lines[statement.last] if statement.last < len(lines) else ""
    if below.strip() and not below.startswith(("#", "include")):
        return statement.first
    first = statement.first
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return first
