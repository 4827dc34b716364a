"""Text for people: lines that fit, broken where a reader expects it, and colors."""

from __future__ import annotations

import dataclasses
import re
import textwrap

_CELL = re.compile(r"( *)(\S+(?: \S+)*)")
"""The spaces in front of a cell, and the cell: words with one space between them."""


def paragraph(text: str) -> list[str]:
    """Wraps the prose of a page."""
    return textwrap.wrap(text, 115, break_long_words=False, break_on_hyphens=False)


def wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    """Wraps between words only: a path that is cut cannot be clicked.

    Args:
      text: one or more lines.
      width: columns to fill.
      first: what the first line begins with.
      rest: what every other line begins with.
    """
    wrapped: list[str] = []
    for line in text.splitlines() or [""]:
        wrapped += textwrap.wrap(
            line,
            width,
            initial_indent=rest if wrapped else first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return wrapped


def wrap_table(text: str, width: int, indent: str) -> list[str]:
    """Keeps the lines of a table, and breaks those that are too long between two cells.

    Args:
      text: lines such as :func:`t5x_harness.findings.tables.columns` makes.
      width: columns to fill.
      indent: what every line begins with.
    """
    wrapped: list[str] = []
    for line in text.splitlines():
        wrapped += [indent + line] if len(indent + line) <= width else _cells_in_lines(line, width, indent)
    return wrapped


def _cells_in_lines(line: str, width: int, indent: str) -> list[str]:
    lines = [indent]
    for gap, cell in _CELL.findall(line):
        if len(lines[-1] + gap + cell) > width and lines[-1].strip():
            lines.append(f"{indent}    {cell}")
        else:
            lines[-1] += gap + cell
    return lines


_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


@dataclasses.dataclass(frozen=True)
class Style:
    """Colors text; ``Style(False)`` leaves it plain."""

    enabled: bool = False

    def tone(self, name: str, text: str) -> str:
        """Returns text in one of red, green, yellow, cyan, bold and dim."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.enabled else text

    def bold(self, text: str) -> str:
        """Returns bold text."""
        return self.tone("bold", text)
