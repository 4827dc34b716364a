"""Edits of single statements: each function makes one fix, or no edit where the text is not as plain as it expects."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Sequence
from typing import Any

from t5x_harness.gin import parsing
from t5x_harness.gin.program import Binding, Block, GinProgram, MacroBinding
from t5x_harness.gin.values import references_in
from t5x_harness.lint.statement_text import StatementText, lines_of, statement_at
from t5x_harness.spec import Edit, Location

Edits = tuple[Edit, ...]

_BLOCK_HEAD = re.compile(r"[\w./]+\s*:\s*(?:#.*)?")
_BINDING_LINE = re.compile(r"(?P<key>\s*[\w./]+\s*=\s*)(?P<value>[^\s#](?:[^#]*[^\s#])?)(?P<rest>\s*(?:#.*)?)")


def rename_bound(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames what a binding binds: its parameter, or the macro. The name stands right before the ``=``."""
    return _substitute(statement_at(program, at), rf"(?<!\w){re.escape(old)}(?=\s*=)", new, first_line_only=True)


def rename_macro_use(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames a macro wherever a statement reads it."""
    return _substitute(statement_at(program, at), rf"(?<=%){re.escape(old)}(?![\w./])", new)


def rename_scope(program: GinProgram, at: Location, old: str, new: str) -> Edits:
    """Renames the scope of a binding, in the head of its block if it stands in one."""
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
    """Writes ``text`` for a binding's value, if that is one literal equal to ``value`` and of its type."""
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
    """Puts ``()`` behind a reference that is the whole value of a binding."""
    statement = statement_at(program, at)
    if statement is None or not statement.value or statement.value[-1].type != tokenize.NAME:
        return ()
    return statement.with_text(statement.value[-1].end, statement.value[-1].end, "()")


def drop_call(program: GinProgram, at: Location) -> Edits:
    """Takes the ``()`` away from a reference that is the whole value of a binding."""
    statement = statement_at(program, at)
    if statement is None or [token.string for token in statement.value[-2:]] != ["(", ")"]:
        return ()
    return statement.with_text(statement.value[-2].start, statement.value[-1].end, "")


def write_value(program: GinProgram, at: Location, text: str) -> Edits:
    """Writes ``text`` as the value of a one-line binding that Gin cannot parse, with the quotes that the file prefers.

    After a syntax error the parser may have started anew inside a string of several lines. In a file with such strings,
    only the first error is trusted.
    """
    lines = lines_of(program, at.file)
    match = _BINDING_LINE.fullmatch(lines[at.line - 1]) if len(lines) >= at.line else None
    if match is None:
        return ()
    if any(quotes in line for line in lines for quotes in ("'''", '"""')):
        first = next(p for p in parsing.parse("\n".join(lines))[1])
        if first.line != at.line:
            return ()
    if text[:1] == "'" and not {'"', "\\"}.intersection(text) and _prefers_double_quotes(lines):
        text = f'"{text[1:-1]}"'
    fixed = f"{match['key']}{text}{match['rest']}"
    statements, problems = parsing.parse(fixed.strip())
    if problems or len(statements) != 1:
        return ()
    return (Edit(at.file, at.line, at.line, f"{fixed}\n"),)


def _prefers_double_quotes(lines: Sequence[str]) -> bool:
    text = "\n".join(lines)
    return text.count('"') > text.count("'")


def _head(program: GinProgram, at: Location) -> StatementText | None:
    """Returns the statement at a place, or the head of the block that it stands in."""
    statement = statement_at(program, at)
    if statement is None or not statement.is_indented:
        return statement
    lines = lines_of(program, at.file)
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
    """Replaces every match of a pattern in a statement's code, and none in its strings and comments."""
    if statement is None:
        return ()
    lines = list(statement.lines)
    for index, code in enumerate(statement.code[: 1 if first_line_only else None]):
        for match in reversed(list(re.finditer(pattern, code))):
            lines[index] = f"{lines[index][: match.start()]}{new}{lines[index][match.end() :]}"
    return statement.with_lines(lines)
