"""Gin bindings of a job's command line, which are parsed before a TPU waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from t5x_harness.gin import parsing

_FLAGS = ("--gin_bindings=", "--gin.", "gin.")


class OverrideError(ValueError):
    """T5X could not read a binding; the message has Gin's reason, and the form that the binding should have."""


def normalized(bindings: Iterable[str]) -> tuple[str, ...]:
    """Returns bindings in the form ``NAME = VALUE``.

    Args:
      bindings: bindings with or without the ``--gin.`` of the command line.

    Raises:
      OverrideError: Gin cannot read a binding, or there is a single text in place of a list.
    """
    if isinstance(bindings, str):
        raise OverrideError(f"bindings are a list: [{bindings!r}], not {bindings!r}")
    return tuple(_normalized(text) for text in bindings)


def argument_of(binding: str) -> str:
    """Returns the argument of T5X's main for a normalized binding: ``--gin.NAME=VALUE``.

    A binding that is not a plain ``NAME = VALUE``, such as an import, becomes ``--gin_bindings``.
    """
    name, equals, value = binding.partition(" = ")
    is_plain = equals and not any(c.isspace() or c in "'\"{[(:" for c in name) and "\n" not in binding
    return f"--gin.{name}={value}" if is_plain else f"--gin_bindings={binding}"


def _normalized(text: str) -> str:
    inner = text.strip()
    while flag := next((flag for flag in _FLAGS if inner.startswith(flag)), None):
        inner = inner.removeprefix(flag).strip()
    name, equals, value = inner.partition("=")
    is_binding = equals and not inner.startswith(("import ", "from ", "include "))
    binding = f"{name.strip()} = {value.strip()}" if is_binding else inner
    statements, errors = parsing.parse(binding)
    if errors:
        raise OverrideError(f"{text}: Gin cannot read this: {errors[0].message}{_hint(name.strip(), value)}")
    if not statements:
        raise OverrideError(f"{text}: this binds nothing; a binding has the form NAME = VALUE")
    return binding


def _hint(name: str, value: str) -> str:
    """Returns what is probably wrong with a binding that Gin cannot read."""
    value = value.strip()
    if '\\"' in value or "\\'" in value:
        return "; the backslashes are for a shell, and stay out of a binding"
    for quote in "'\"":
        if value.count(quote) % 2:
            return f"; a quote ({quote}) is missing"
    if value.endswith(","):
        return "; it ends in a comma"
    if value and not value.startswith(tuple("'\"@%[{(-0123456789")) and value not in ("True", "False", "None"):
        return f"; a string needs quotes of its own: {name} = '{value}'"
    return ""
