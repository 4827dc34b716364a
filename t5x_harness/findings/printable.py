"""Text from users' files on its way to a terminal, a log or a page: it is shown but never acts, without its secrets."""

import dataclasses
import enum
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from t5x_harness.spec import Edit
from t5x_harness.system.secrets import MASK, mask_text, masked_binding

Value = TypeVar("Value")

_KEY_BEGINS, _KEY_ENDS = "PRIVATE KEY-----", "-----END"
_KEY_LINE = re.compile(r"(?:[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/]+==?)\s*\Z")

_LINE_END = re.compile("\r\n?")
_COMMAND = re.compile(r"(?<!\S):(?=:|\Z)|(?<=#)#(?=\w*\[)")
"""The character that turns text into a command in the log of a CI service.

GitHub obeys ``::add-mask::`` at the beginning of a line, after any blanks, and ``##[add-mask]`` anywhere in a line;
others obey ``##vso[`` and ``##teamcity[``. Lines are broken at blanks, so text after a blank may begin a line.
"""

_IN_JSON = re.compile(r"(?<=#)#(?=\w*\[)")

_ONE_LINE = frozenset({"file", "binding", "before", "after", "gin_files", "of", "origins"})
"""Fields whose text is one line: a line break in it is part of a name."""


_BOUND_TEXT = frozenset({"value", "before", "after"})
"""Fields whose text is bound to the name in another field of the same object."""


def printable(value: Value) -> Value:
    r"""Masks secrets, and escapes text that would act if it were printed, as Python's ``repr`` does.

    These are the characters that ``str.isprintable`` refuses, such as terminal escapes, bidirectional controls,
    invisible characters and halves of surrogate pairs, and the beginnings of commands to a CI service. Clean text is
    unchanged, so cleaning it twice is the same as cleaning it once.

    Args:
      value: text, whose line feeds and tabs stay; or a container or dataclass, in which all text is cleaned.
    """
    cleaned: Any = _cleaned(value, _text)
    return cleaned  # type: ignore[no-any-return]


class PrintableLines:
    """Makes lines printable that arrive one by one; a private key whose lines follow each other is masked, too."""

    def __init__(self) -> None:
        self._is_in_key = False

    def __call__(self, line: str) -> str:
        """Returns the next line as it may be shown."""
        begins, ends = _KEY_BEGINS in line, _KEY_ENDS in line
        shown = _KEY_LINE.sub(MASK, line) if self._is_in_key and not ends else line
        self._is_in_key = (begins or shown != line) and not ends
        return printable(shown)


def without_secrets(value: Value) -> Value:
    """Masks the secrets in all text of plain values or of a dataclass, and changes nothing else."""
    masked: Any = _cleaned(value, lambda text, one_line: text)
    return masked  # type: ignore[no-any-return]


def shown_edits(edits: Sequence[Edit]) -> Sequence[Edit]:
    """Returns the edits of a finding; none if one has a secret in it, because a program would write the mask."""
    return () if any(mask_text(edit.text) != edit.text for edit in edits) else edits


def printable_json(text: str) -> str:
    """Escapes the beginnings of commands to a CI service in a JSON document, without changing its content.

    Args:
      text: the document as ASCII text, so everything else in its strings is already escaped.
    """
    return _IN_JSON.sub(r"\\u0023", text)


def _cleaned(value: Any, clean: Callable[[str, bool], str], key: str = "", name: str = "") -> Any:
    """Cleans a value.

    Args:
      value: the value, or an object with it.
      clean: cleans a text without secrets; it also gets whether the text is one line.
      key: the field of the value.
      name: the name that a text is bound to, if the object around it has one.
    """
    if isinstance(value, str):
        if isinstance(value, enum.Enum):
            return value
        return clean(masked_binding(name if key in _BOUND_TEXT else key, value), key in _ONE_LINE)
    if isinstance(value, (tuple, list)):
        cleaned = [_cleaned(item, clean, key, name) for item in value]
        if isinstance(value, list):
            return cleaned
        return value if all(map(operator.is_, cleaned, value)) else tuple(cleaned)
    if isinstance(value, Mapping):
        return {_cleaned(k, clean): part for k, part in _parts(value, clean, name).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field: getattr(value, field) for field in _fields(type(value))}
        parts = _parts(fields, clean, name)
        return value if parts == fields else dataclasses.replace(value, **parts)
    return value


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _parts(fields: Mapping[Any, Any], clean: Callable[[str, bool], str], outer: str) -> dict[Any, Any]:
    own = fields.get("name") or fields.get("binding")
    name = own if isinstance(own, str) else outer
    return {key: _cleaned(part, clean, str(key), name) for key, part in fields.items()}


def _text(text: str, one_line: bool) -> str:
    if text.isprintable() and ":" not in text and "##" not in text:
        return text
    whole = text if one_line else _LINE_END.sub("\n", text)
    kept = "" if one_line else "\n\t"
    shown = "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in whole)
    return _COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", shown)
