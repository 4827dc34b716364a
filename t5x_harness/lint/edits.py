"""Edits of a gin file: each function makes one fix, or no edit if the text is not as plain as it expects."""

import ast
import dataclasses
import re
import tokenize
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from gin import config_parser

from t5x_harness.gin import parsing
from t5x_harness.gin.program import Binding, Block, GinProgram, MacroBinding
from t5x_harness.gin.values import references_in
from t5x_harness.spec import Edit, Location


@dataclasses.dataclass(frozen=True)
class StatementText:
    """One statement: an import, an include, a binding, or the head of a block.

    Attributes:
      file: the file's name, as shown in locations.
      first: its first line, counted from 1.
      lines: its lines without their line ends; a trailing comment belongs to it.
      tokens: its tokens, whose rows count from 1 at the first line.
    """

    file: str
    first: int
    lines: tuple[str, ...]
    tokens: tuple[tokenize.TokenInfo, ...]

    @property
    def last(self) -> int:
        """Its last line."""
        return self.first + len(self.lines) - 1

    @property
    def is_indented(self) -> bool:
        """Whether it is a binding in a block."""
        return self.lines[0][:1].isspace()

    @cached_property
    def code(self) -> tuple[str, ...]:
        """Its lines with strings and comments blanked out, so that names are found only in code."""
        lines = [list(line) for line in self.lines]
        for token in self.tokens:
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                for row in range(token.start[0], token.end[0] + 1):
                    line = lines[row - 1]
                    begin = token.start[1] if row == token.start[0] else 0
                    end = token.end[1] if row == token.end[0] else len(line)
                    line[begin:end] = " " * (end - begin)
        return tuple("".join(line) for line in lines)

    @cached_property
    def value(self) -> tuple[tokenize.TokenInfo, ...]:
        """The tokens of a binding's value; empty for other statements."""
        equals = next((i for i, token in enumerate(self.tokens) if token.string == "="), len(self.tokens))
        beside = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
        return tuple(token for token in self.tokens[equals + 1 :] if token.type not in beside)

    def with_lines(self, lines: Sequence[str]) -> tuple[Edit, ...]:
        """Returns the edit that gives it these lines; none if it has them already."""
        if tuple(lines) == self.lines:
            return ()
        return (Edit(self.file, self.first, self.last, "".join(f"{line}\n" for line in lines)),)

    def with_text(self, start: tuple[int, int], end: tuple[int, int], text: str) -> tuple[Edit, ...]:
        """Returns the edit that replaces the text between two token positions on one line by ``text``."""
        (row, begin), (last_row, stop) = start, end
        if row != last_row:
            return ()
        lines = list(self.lines)
        lines[row - 1] = f"{lines[row - 1][:begin]}{text}{lines[row - 1][stop:]}"
        return self.with_lines(lines)


def statement_at(program: GinProgram, at: Location) -> StatementText | None:
    """Returns the statement that begins at a place; None if it is not the user's, or its end is unclear."""
    lines = program.own_lines.get(at.file, ())
    first = max(at.line - 1, 0)
    following = (f"{lines[number]}\n" for number in range(first, len(lines)))
    tokens: list[tokenize.TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(lambda: next(following, "")):
            if token.type == tokenize.NEWLINE:
                return StatementText(at.file, at.line, lines[first : first + token.start[0]], tuple(tokens))
            tokens.append(token)
    except (tokenize.TokenError, SyntaxError):  # a bracket or a string that never ends, odd indentation
        return None
    return None


REGISTRATION = "from __gin__ import dynamic_registration"
"""The statement that lets a file use the names of everything that it imports."""

Edits = tuple[Edit, ...]


def move_below(program: GinProgram, at: Location, include: int) -> Edits:
    """Moves a binding below the include in line ``include``, along with a comment that is only about the binding."""
    statement = statement_at(program, at)
    target = statement_at(program, Location(at.file, include))
    if statement is None or target is None or statement.is_indented:
        return ()
    lines = program.own_lines.get(at.file, ())
    first = _first_of_paragraph(lines, statement)
    moved = lines[first - 1 : statement.last]
    gap = first > 1 and statement.last < len(lines) and not (lines[first - 2] + lines[statement.last]).strip()
    # One blank line is enough.
    return Edit(at.file, first, statement.last + gap, ""), _insert(at.file, target.last + 1, moved)


def raise_registration(program: GinProgram, at: Location) -> Edits:
    """Moves the switch to dynamic registration above the first import of its file."""
    statement = statement_at(program, at)
    imports = _imports(program, at.file)
    if statement is None or not imports or imports[0] >= at.line:
        return ()
    return _insert(at.file, imports[0], statement.lines), Edit(at.file, statement.first, statement.last, "")


def remove(program: GinProgram, at: Location) -> Edits:
    """Removes a statement from its file."""
    statement = statement_at(program, at)
    return () if statement is None else (Edit(at.file, statement.first, statement.last, ""),)


def add_import(program: GinProgram, at: Location, statement: str) -> Edits:
    """Adds an import to a file under dynamic registration, below the imports that precede its first use ``at``."""
    above = [line for line in _imports(program, at.file) if line < at.line]
    last = statement_at(program, Location(at.file, above[-1])) if above else None
    return () if last is None else (_insert(at.file, last.last + 1, [statement]),)


def begin_with(program: GinProgram, file: str, statements: Iterable[str]) -> Edits:
    """Puts statements before all others of a file, below the comment at its top."""
    lines = program.own_lines.get(file, ())
    if not lines:
        return ()
    first = next((n for n, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")), len(lines))
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1  # a comment directly above the first statement is about that statement
    return (_insert(file, first, list(statements)),)


def _imports(program: GinProgram, file: str) -> list[int]:
    """Returns the lines of a file's imports."""
    statements, _ = parsing.parse("\n".join(program.own_lines.get(file, ())))
    return [each.location.line_num for each in statements if isinstance(each, config_parser.ImportStatement)]


def _insert(file: str, line: int, lines: Sequence[str]) -> Edit:
    return Edit(file, line, line - 1, "".join(f"{text}\n" for text in lines))


def _first_of_paragraph(lines: Sequence[str], statement: StatementText) -> int:
    """Returns the first line of the comment directly above a statement, if it can be about nothing else."""
    below = lines[statement.last] if statement.last < len(lines) else ""
    if below.strip() and not below.startswith(("#", "include")):
        return statement.first
    first = statement.first
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return first


_BLOCK_HEAD = re.compile(r"[\w./]+\s*:\s*(?:#.*)?")
_BINDING_LINE = re.compile(r"(?P<key>\s*[\w./]+\s*=\s*)(?P<value>[^\s#](?:[^#]*[^\s#])?)(?P<rest>\s*(?:#.*)?)")


def rename_bound(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames the target of a binding, which is its parameter or the macro. The name directly precedes the ``=``."""
    return _substitute(statement_at(program, at), rf"(?<!\w){re.escape(old)}(?=\s*=)", new, first_line_only=True)


def rename_macro_use(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames a macro everywhere in a statement that reads it."""
    return _substitute(statement_at(program, at), rf"(?<=%){re.escape(old)}(?![\w./])", new)


def rename_scope(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames the scope of a binding, in the head of its block if it is in one."""
    statement = _head(program, at)
    return _substitute(statement, rf"^{re.escape(old)}(?=/[\w.]+\s*[.:=])", new, first_line_only=True)


def rename_selector(program: GinProgram, file: str, old: str, new: str) -> Edits:
    """Renames a configurable, or the module that its name begins with, everywhere in one file."""
    found: dict[Edit, None] = {}
    for statement in program.statements:
        if statement.location.file == file and _names(statement, old):
            pattern = rf"(?<![\w.]){re.escape(old)}(?!\w)"
            found.update(dict.fromkeys(_substitute(statement_at(program, statement.location), pattern, new)))
    return tuple(found)


def set_literal(program: GinProgram, at: Location, value: Any, text: str) -> Edits:
    """Replaces a binding's value by ``text``, if it is a single literal that equals ``value`` and has its type."""
    statement = statement_at(program, at)
    if statement is None or not statement.value:
        return ()
    tokens = statement.value
    if len(tokens) > 2 or tokens[-1].type not in (tokenize.NUMBER, tokenize.STRING):
        return ()
    written = ast.literal_eval("".join(token.string for token in tokens))
    if type(written) is not type(value) or written != value:
        return ()
    return statement.with_text(tokens[0].start, tokens[-1].end, text)


def add_call(program: GinProgram, at: Location) -> Edits:
    """Adds ``()`` to a reference that is the whole value of a binding."""
    statement = statement_at(program, at)
    if statement is None or not statement.value or statement.value[-1].type != tokenize.NAME:
        return ()
    return statement.with_text(statement.value[-1].end, statement.value[-1].end, "()")


def drop_call(program: GinProgram, at: Location) -> Edits:
    """Removes the ``()`` from a reference that is the whole value of a binding."""
    statement = statement_at(program, at)
    if statement is None or [token.string for token in statement.value[-2:]] != ["(", ")"]:
        return ()
    return statement.with_text(statement.value[-2].start, statement.value[-1].end, "")


def write_value(program: GinProgram, at: Location, text: str) -> Edits:
    """Writes ``text`` as the value of a one-line binding that Gin cannot parse, with the quotes that the file prefers.

    After a syntax error, the parser may have resumed inside a string of several lines. In a file with such strings,
    only the first error is trusted.
    """
    lines = program.own_lines.get(at.file, ())
    match = _BINDING_LINE.fullmatch(lines[at.line - 1]) if len(lines) >= at.line else None
    if match is None:
        return ()
    if any(quotes in line for line in lines for quotes in ("'''", '"""')):
        first = next(p for p in parsing.parse("\n".join(lines))[1])
        if first.line != at.line:
            return ()
    written = "".join(lines)
    if text[:1] == "'" and not {'"', "\\"}.intersection(text) and written.count('"') > written.count("'"):
        text = f'"{text[1:-1]}"'
    fixed = f"{match['key']}{text}{match['rest']}"
    statements, problems = parsing.parse(fixed.strip())
    if problems or len(statements) != 1:
        return ()
    return (Edit(at.file, at.line, at.line, f"{fixed}\n"),)


def _head(program: GinProgram, at: Location) -> StatementText | None:
    """Returns the statement at a place, or the head of the block that contains it."""
    statement = statement_at(program, at)
    if statement is None or not statement.is_indented:
        return statement
    lines = program.own_lines.get(at.file, ())
    for number in range(at.line - 1, 0, -1):
        line = lines[number - 1]
        if line and not line[0].isspace() and not line.startswith("#"):
            return statement_at(program, Location(at.file, number)) if _BLOCK_HEAD.fullmatch(line) else None
    return None


def _names(statement: object, name: str) -> bool:
    """Returns whether a statement uses a configurable of this name, or one whose name begins with it."""
    selectors = [statement.selector] if isinstance(statement, (Binding, Block)) else []
    if isinstance(statement, (Binding, MacroBinding)):
        selectors += [reference.selector for reference in references_in(statement.value)]
    return any(selector == name or selector.startswith(f"{name}.") for selector in selectors)


def _substitute(statement: StatementText | None, pattern: str, new: str, *, first_line_only: bool = False) -> Edits:
    """Replaces every match of a pattern in a statement's code, but none in its strings and comments."""
    if statement is None:
        return ()
    lines = list(statement.lines)
    for index, code in enumerate(statement.code[: 1 if first_line_only else None]):
        for match in reversed(list(re.finditer(pattern, code))):
            lines[index] = f"{lines[index][: match.start()]}{new}{lines[index][match.end() :]}"
    return statement.with_lines(lines)
