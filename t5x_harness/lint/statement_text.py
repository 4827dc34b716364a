"""The text of one statement of a gin file: its lines and tokens, as edits need them."""

from __future__ import annotations

import dataclasses
import tokenize
from collections.abc import Sequence
from functools import cached_property

from t5x_harness.gin.program import GinProgram
from t5x_harness.spec import Edit, Location

_BESIDE_VALUES = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE})


@dataclasses.dataclass(frozen=True)
class StatementText:
    """One statement: an import, an include, a binding, or the head of a block.

    Attributes:
      file: the file's name, as locations show it.
      first: its first line, counted from 1.
      lines: its lines without their ends; a comment behind it belongs to it.
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
        """Whether it is a binding inside a block."""
        return self.lines[0][:1].isspace()

    @cached_property
    def code(self) -> tuple[str, ...]:
        """Its lines with strings and comments blanked out, so that a name is found only where it is one."""
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
        return tuple(token for token in self.tokens[equals + 1 :] if token.type not in _BESIDE_VALUES)

    def with_lines(self, lines: Sequence[str]) -> tuple[Edit, ...]:
        """Returns the edit that gives it these lines; none if they are those it has."""
        if tuple(lines) == self.lines:
            return ()
        return (Edit(self.file, self.first, self.last, "".join(f"{line}\n" for line in lines)),)

    def with_text(self, start: tuple[int, int], end: tuple[int, int], text: str) -> tuple[Edit, ...]:
        """Returns the edit that puts ``text`` in place of what lies between two positions of tokens on one line."""
        (row, begin), (last_row, stop) = start, end
        if row != last_row:
            return ()
        lines = list(self.lines)
        lines[row - 1] = f"{lines[row - 1][:begin]}{text}{lines[row - 1][stop:]}"
        return self.with_lines(lines)


def lines_of(program: GinProgram, file: str) -> tuple[str, ...]:
    """Returns the lines of a user's file; none for the command line and for files of installed packages."""
    return program.own_lines.get(file, ())


def statement_at(program: GinProgram, at: Location) -> StatementText | None:
    """Returns the statement that begins at a place; None if it is not the user's, or its end cannot be seen."""
    lines = lines_of(program, at.file)
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
