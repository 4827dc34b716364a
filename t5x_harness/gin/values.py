"""Gin values as written in a file: literals, references (``@scope/name()``) and macros (``%NAME``)."""

import dataclasses
from typing import Any, TypeVar

REQUIRED = "gin.REQUIRED"


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference to a configurable.

    Attributes:
      scope: the scopes before the name, ``big/train`` in ``@big/train/utils.X``; empty for none.
      selector: the name as written, ``utils.DatasetConfig``.
      called: whether it ends in ``()``.
      target: the full name of the configurable (``t5x.utils.DatasetConfig``); None if it cannot be known.
    """

    scope: str
    selector: str
    called: bool
    target: str | None = None

    def __str__(self) -> str:
        scope = f"{self.scope}/" if self.scope else ""
        return f"@{scope}{self.selector}{'()' if self.called else ''}"


@dataclasses.dataclass(frozen=True)
class Macro:
    """The use of a macro: ``%NAME``. ``name`` includes the scopes."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


def is_required(value: Any) -> bool:
    """Returns whether a value is ``%gin.REQUIRED``, which Gin refuses unless something overrides it."""
    return isinstance(value, Macro) and value.name in (REQUIRED, "REQUIRED")


PLAIN = (str, int, float, type(None))
"""The types of most values, which have no parts."""

Part = TypeVar("Part", Reference, Macro)


def _found(value: Any, kind: type[Part]) -> list[Part]:
    """Returns the parts of a value that are of a kind, in order; lists, as all rules ask this of all values."""
    if isinstance(value, PLAIN):
        return []
    if isinstance(value, kind):
        return [value]
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _found(item, kind)]
    if isinstance(value, dict):
        return [part for pair in value.items() for part in _found(pair, kind)]
    return []


def macros_in(value: Any) -> list[Macro]:
    """Returns the macros that a value uses, including nested ones but not ``%gin.REQUIRED``."""
    return [macro for macro in _found(value, Macro) if not is_required(macro)]


def references_in(value: Any) -> list[Reference]:
    """Returns the references in a value, including nested ones."""
    return _found(value, Reference)


def format_value(value: Any, limit: int = 60) -> str:
    """Writes a value as Gin text, cut to ``limit`` characters."""
    text = _format(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _format(value: Any) -> str:
    if isinstance(value, (Reference, Macro)):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_format(k)}: {_format(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_format(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(_format(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def same_value(first: Any, second: Any) -> bool:
    """Returns whether two values are the same as Gin text, so that ``1``, ``1.0`` and ``True`` differ."""
    return _format(first) == _format(second)
