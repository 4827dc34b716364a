"""Text from users' files on its way to a terminal, a log or a page, where it is shown but never acts."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

_LINE_END = re.compile("\r\n?")
_COMMAND = re.compile(r"(?<!\S):(?=:|\Z)|(?<=#)#(?=\w*\[)")
"""The character that turns text into a command in the log of a CI service.

GitHub obeys ``::add-mask::`` at the beginning of a line, after any blanks, and ``##[add-mask]`` anywhere in a line;
others obey ``##vso[`` and ``##teamcity[``. Lines are broken at blanks, so text after a blank may begin a line.
"""

_IN_JSON = re.compile(r"(?<=#)#(?=\w*\[)")

_ONE_LINE = frozenset({"file", "binding", "before", "after", "gin_files", "of", "origins"})
"""Fields whose text is one line: a line break in it is part of a name."""


def printable(value: Value) -> Value:
    r"""Escapes text that would act if it were printed, as Python's ``repr`` does.

    These are the characters that ``str.isprintable`` refuses, such as terminal escapes, bidirectional controls,
    invisible characters and halves of surrogate pairs, and the beginnings of commands to a CI service. Clean text is
    unchanged, so cleaning it twice is the same as cleaning it once.

    Args:
      value: text, whose line feeds and tabs stay; or a container or dataclass, in which all text is cleaned.
    """
    cleaned: Any = _cleaned(value, one_line=False)
    return cleaned  # type: ignore[no-any-return]


def printable_json(text: str) -> str:
    """Escapes the beginnings of commands to a CI service in a JSON document, without changing its content.

    Args:
      text: the document as ASCII text, so everything else in its strings is already escaped.
    """
    return _IN_JSON.sub(r"\\u0023", text)


def _cleaned(value: Any, *, one_line: bool) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, enum.Enum) else _text(value, one_line)
    if isinstance(value, tuple):
        return tuple(_cleaned(item, one_line=one_line) for item in value)
    if isinstance(value, Mapping):
        return {_cleaned(k, one_line=one_line): _cleaned(v, one_line=one_line) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        cleaned = {name: _cleaned(part, one_line=name in _ONE_LINE) for name, part in fields.items()}
        return value if cleaned == fields else dataclasses.replace(value, **cleaned)
    return value


def _text(text: str, one_line: bool) -> str:
    if text.isprintable() and ":" not in text and "##" not in text:
        return text
    whole = text if one_line else _LINE_END.sub("\n", text)
    kept = "" if one_line else "\n\t"
    shown = "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in whole)
    return _COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", shown)
