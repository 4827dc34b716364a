"""Text for people: lines that fit, with breaks where a reader expects them, and colors."""

import dataclasses
import re
import textwrap
from collections.abc import Sequence

_CELL = re.compile(r"( *)(\S+(?: \S+)*)")
"""The spaces before a cell, and the cell: words with one space between them."""


def paragraph(text: str) -> list[str]:
    """Wraps the prose of a page."""
    return textwrap.wrap(text, 115, break_long_words=False, break_on_hyphens=False)


def wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    """Wraps only between words, because a broken path cannot be clicked.

    Args:
      text: one or more lines.
      width: the number of columns to fill.
      first: the prefix of the first line.
      rest: the prefix of all other lines.
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
    """Keeps the lines of a table, but breaks lines that are too long between two cells.

    Args:
      text: lines in the form that :func:`t5x_harness.findings.text.columns` makes.
      width: the number of columns to fill.
      indent: the prefix of every line.
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
        """Returns text in one of the tones red, green, yellow, cyan, bold and dim."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.enabled else text

    def bold(self, text: str) -> str:
        """Returns bold text."""
        return self.tone("bold", text)


GAP = "  "
"""The gap between two columns. No cell contains it, so the code that prints a table can tell cells apart."""

_NUMBER = re.compile(r"[-+~<>]?\d[\d,_.]*(?:e[-+]?\d+)?\s?(?:%|[A-Za-z/]{1,6})?", re.ASCII)


class Count(int):
    """A number that a table shows with commas: ``60,506,624``."""

    def __str__(self) -> str:
        return f"{int(self):,}"


class Bytes(int):
    """Bytes that a table shows with a binary unit and three digits: ``5.21 GiB``."""

    def __str__(self) -> str:
        value, unit = float(self), "B"
        for larger in ("KiB", "MiB", "GiB", "TiB"):
            if value < 1000:
                break
            value, unit = value / 1024, larger
        return f"{value:.3g} {unit}"


class Table(str):
    """The text of a table, with the data from which it was built.

    Attributes:
      header: the headings of the columns; empty if it has none.
      rows: the cells: numbers as they were given, everything else as text.
    """

    header: tuple[str, ...] = ()
    rows: tuple[tuple[int | float | str, ...], ...] = ()


def columns(rows: Sequence[Sequence[object]], header: Sequence[str] = ()) -> Table:
    """Makes a table with aligned columns: columns of numbers are aligned right, all others left.

    Args:
      rows: the cells of each row, written with ``str``; a short row is padded with empty cells.
      header: the headings of the columns; none by default.

    Returns:
      One line per row, below the header's. No line ends in a space or a newline. The text is empty without rows.
    """
    # Cells hold no two spaces in a row, nor a line break: both would look like the end of a cell.
    body = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    table = [list(header), *body] if header else body
    count = max(map(len, table), default=0)
    table = [[*row, *[""] * (count - len(row))] for row in table]
    widths = [max(len(row[index]) for row in table) for index in range(count)]
    filled = [[row[i] for row in body if i < len(row) and row[i] not in ("", "-")] for i in range(count)]
    to_the_right = [bool(cells) and all(map(_NUMBER.fullmatch, cells)) for cells in filled]
    lines = []
    for row in table:
        cells = zip(row, widths, to_the_right, strict=True)
        lines.append(GAP.join(c.rjust(width) if right else c.ljust(width) for c, width, right in cells).rstrip())
    made = Table("\n".join(lines))
    made.header = tuple(header)
    pairs = (zip(row, texts, strict=True) for row, texts in zip(rows, body, strict=True))
    made.rows = tuple(tuple(cell if isinstance(cell, int | float) else text for cell, text in row) for row in pairs)
    return made
