r"""The globs of ``matchGlob``.

*       any characters but a slash
**      any characters
?       one character, not a slash
[abc]   one of them; ranges as in [a-z]; [!abc] or [^abc] one of the others
{a,b}   one of the alternatives, which may have globs in them
\       takes the next character as it is
"""

from __future__ import annotations

import re

from t5x_harness.google.storage.errors import Invalid

__all__ = ["glob_to_regex", "literal_prefix"]

_SPECIAL = "*?[{\\"


def literal_prefix(glob: str) -> str:
    """What every name that matches begins with."""
    for index, character in enumerate(glob):
        if character in _SPECIAL:
            return glob[:index]
    return glob


def glob_to_regex(glob: str) -> re.Pattern[str]:
    """The regular expression that matches the same names, to be used with ``fullmatch``.

    Raises:
      Invalid: a bracket or brace is not closed, or a range runs backwards.
    """
    parts: list[str] = []
    depth = 0
    index = 0
    while index < len(glob):
        character = glob[index]
        index += 1
        if character == "*":
            across = glob.startswith("*", index)
            index += across
            parts.append(".*" if across else "[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            text, index = _characters(glob, index)
            parts.append(text)
        elif character == "{":
            depth += 1
            parts.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            parts.append(")")
        elif character == "," and depth:
            parts.append("|")
        elif character == "\\" and index < len(glob):
            parts.append(re.escape(glob[index]))
            index += 1
        else:
            parts.append(re.escape(character))
    if depth:
        raise Invalid(f"Invalid glob {glob!r}: a brace is not closed")
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise Invalid(f"Invalid glob {glob!r}: {error}") from error


def _characters(glob: str, start: int) -> tuple[str, int]:
    """The set of characters after a bracket, and where the text goes on."""
    negated = glob[start : start + 1] in ("!", "^")
    first = start + negated
    end = glob.find("]", first + 1)  # a bracket right at the beginning is one of the characters
    if end < 0:
        raise Invalid(f"Invalid glob {glob!r}: a bracket is not closed")
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[first:end])
    return f"[^/{inside}]" if negated else f"(?!/)[{inside}]", end + 1
