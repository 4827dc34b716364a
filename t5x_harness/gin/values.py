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


def _collect(value: Any, kind: type[Part], found: list[Part]) -> None:
    """Adds the parts of a value that are of a kind, in order, with one of Python's stack frames for each level."""
    if isinstance(value, PLAIN):
        return
    if isinstance(value, kind):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, kind, found)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(key, kind, found)
            _collect(item, kind, found)


def macros_in(value: Any) -> list[Macro]:
    """Returns the macros that a value uses, including nested ones but not ``%gin.REQUIRED``."""
    if isinstance(value, PLAIN):  # as most are, and all rules ask
        return []
    found: list[Macro] = []
    _collect(value, Macro, found)
    return [macro for macro in found if not is_required(macro)]


def references_in(value: Any) -> list[Reference]:
    """Returns the references in a value, including nested ones."""
    if isinstance(value, PLAIN):
        return []
    found: list[Reference] = []
    _collect(value, Reference, found)
    return found


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
