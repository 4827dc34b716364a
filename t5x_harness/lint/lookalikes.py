"""Characters that look like others, or like nothing: a line of Gin that holds one looks right and cannot be parsed."""

from __future__ import annotations

import re
import unicodedata

_STRING_OR_REST = re.compile(r"""(['"])(?:\\.|(?!\1).)*\1|['"#].*""", re.DOTALL)
"""A string in straight quotes; else a comment, or a string without an end, to the end of the line."""

_MEANT = {
    "Zs": "a plain space",
    "Cf": "",
    "Pd": "a plain -",
    "Sm": "a plain -",
    "Pi": "a straight quote",
    "Pf": "a straight quote",
}
"""What to write instead, by the character's category in Unicode; empty for a character that does not show."""

_QUOTES = frozenset("\u201a\u201e\u2032\u2033\u00b4\uff02\uff07`")
"""Characters of other categories that stand for quotes."""


def unseen_character(line: str, detail: str) -> tuple[str, str] | None:
    """Returns which character of a line looks like another one, or like nothing, and the fix.

    Args:
      line: as it stands in the file. Strings and comments may hold any character.
      detail: the parser's own words.

    Returns:
      None if each character is what it looks like.
    """
    outside = _STRING_OR_REST.sub(lambda match: "x" * len(match[0]), line)
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    if "\t" in indent and re.search(r"indent|\btabs?\b|Invalid identifier", detail):
        return f"{detail}; column {indent.index(chr(9)) + 1} is a tab", "indent with spaces alone"
    for column, character in enumerate(outside, start=1):
        if character in _QUOTES:
            meant: str | None = "a straight quote"
        else:
            meant = None if character.isascii() else _MEANT.get(unicodedata.category(character))
        if meant is not None:
            shows = f"looks like {meant}" if meant else "does not show"
            name = f"U+{ord(character):04X} ({unicodedata.name(character, 'without a name')})"
            return (
                f"column {column} is {name}, which {shows}",
                f"write {meant} in its place" if meant else "take it out",
            )
    return None
