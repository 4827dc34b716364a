"""Checks the values of a dataclass's fields by their annotations, for values that users write in Python and TOML."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from t5x_harness.system.texts import unfit

LARGEST = 2**31 - 1
"""The largest number in options and markers: what Google's messages hold, and 68 years in seconds."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not unfit(value)


def _all_text(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(map(_is_text, values))


_FORMS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text on one line", _is_text),
    "int": (f"a whole number from 1 to {LARGEST}", lambda value: type(value) is int and 0 < value <= LARGEST),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "tuple[str, ...]": ("a list of globs", _all_text),
    "Mapping[str, str]": (
        "a dict of texts",
        lambda given: (
            isinstance(given, Mapping) and _all_text([*given]) and all(isinstance(v, str) for v in given.values())
        ),
    ),
}
"""For each type of field, the requirement on its value in words, and a check of it."""


def fault_in(value: Any, names: Collection[str] = ()) -> str:
    """Returns which field has no value of its type, and what it has to be; empty if all have one.

    Args:
      value: a dataclass's value, whose annotations are texts. Fields of other types than those above are not checked.
      names: the fields to check; empty for all.
    """
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        form, fits = _FORMS.get(str(field.type).removesuffix(" | None"), ("", None))
        may_be_none = str(field.type).endswith(" | None")
        if fits is None or (names and field.name not in names) or (given is None and may_be_none):
            continue
        if not fits(given):
            return f"{field.name} has to be {form}, not {given!r}"
    return ""
