"""Values that no option, marker or job takes: as words of a command line, and as objects of Python and TOML.

They are generated from what declares the value: the form of an option, or the type of a field.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t5x_harness.spec.option import Option, OptionForm

NUMBERS = (OptionForm.COUNT, OptionForm.FROM_ZERO, OptionForm.POSITIVE)
"""The forms whose values are numbers."""


def wrong_words(choices: Any = (), *, is_number: bool = False, has_lines: bool = False) -> list[str]:
    """Returns words that an option with a value does not take; the first is empty.

    Args:
      choices: the words that it takes; empty if it takes any of its form.
      is_number: whether it takes numbers only.
      has_lines: whether its values may have several lines.
    """
    wrong = ["", "caf\udce9"]
    if not has_lines:
        wrong.append("a\nb")
    wrong += [f"{choice}x" for choice in choices]
    if is_number:
        wrong += ["nan", "inf", "-0.5", "1e999", "'8'", "wrong value", "9" * 30]
    return wrong


_WRONG_NAMES = {
    OptionForm.SLICE: ("v3-9", "v3", "v3:0x4", "8"),
    OptionForm.CODES: ("GIN99", "gin01"),
    OptionForm.TARGET: ("wrong value", "gs://bucket/x"),
    OptionForm.FAULT: ("during=lunch", "how=sigkill", "at_step=-1", "grace=x", "step,step", "moment=save"),
    OptionForm.BUCKETS: ("no_such_folder",),
}


def wrong_words_of(option: Option) -> list[str]:
    """Returns words that an option does not take, whether it is on the command line, in a variable or an ini value."""
    if option.form is OptionForm.FLAG:
        return ["", "maybe"]
    words = wrong_words(option.choices, is_number=option.form in NUMBERS, has_lines=option.form is OptionForm.BINDINGS)
    any_text = option.field == "image_python_path"
    return [*words, *(() if any_text else _WRONG_NAMES.get(option.form, ()))]


_OBJECTS: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, 2**40, 0.5, math.nan, math.inf),
    *("", " ", "8", "wrong value", "a\nb", "caf\udce9", "nul\0"),
    *([], ["a"], [""], [8], {}, {"a": "b"}, {"a": 8}, {"": "b"}, {8: "b"}, b"a", object),
)
"""One object of each kind, some of which fit no type."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not {"\n", "\0", "\udce9"}.intersection(value)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "int": _is_whole,
    "bool": lambda value: isinstance(value, bool),
    "float | str": lambda value: value in ("8", 1, 0.5) and not isinstance(value, bool),  # a length of time
    "tuple[str, ...]": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "Sequence[str]": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "Paths": lambda value: _is_text(value) or (isinstance(value, list) and bool(value) and all(map(_is_text, value))),
    "Mapping[str, str]": lambda value: isinstance(value, dict) and all(map(_is_text, [*value, *value.values()])),
}


def wrong_objects(type_: str, *, takes_zero: bool = False) -> Iterator[Any]:
    """Yields objects that a field of a type does not take.

    Args:
      type_: the type as its annotation has it, such as ``int | None``.
      takes_zero: whether a number may be zero.
    """
    fits = _FITS[type_.removesuffix(" | None")]
    yield from (value for value in _OBJECTS if not fits(value) and not (takes_zero and value == 0))


def python_of(value: Any) -> str:
    """Returns a value as Python's source has it."""
    return f"float('{value}')" if isinstance(value, float) else "object" if value is object else repr(value)


_TOML_TYPES = {OptionForm.FLAG: "bool", OptionForm.COUNT: "int"}


def wrong_toml_of(option: Option) -> Iterator[Any]:
    """Yields values of TOML that the key of an option does not take."""
    form = option.form
    type_ = "tuple[str, ...]" if form.is_list else _TOML_TYPES.get(form, "str")
    if form in (OptionForm.TABLE, OptionForm.RESOURCES, OptionForm.BINDINGS):
        yield from (value for value in _OBJECTS if not isinstance(value, list | dict))
    else:
        yield from wrong_objects(type_)
        yield from (word for word in wrong_words_of(option) if type_ == "str")


def toml_of(value: Any) -> str | None:
    """Returns a value as TOML; None if TOML has no such value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value) if value.isascii() else None
    if isinstance(value, list) and None not in (items := [toml_of(item) for item in value]):
        return f"[{', '.join(map(str, items))}]"
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return f"{{ {', '.join(f'{json.dumps(key)} = {toml_of(item)}' for key, item in value.items())} }}"
    return None
