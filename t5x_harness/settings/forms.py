"""The forms of values as people write them, in arguments, ini values, variables and pyproject.toml.

A parser of one word raises :exc:`argparse.ArgumentTypeError`; its message completes a sentence that begins with the
name of the option.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.buckets.emulated import buckets_in
from t5x_harness.promotion.marker import seconds_of
from t5x_harness.spec.option import Option, OptionForm
from t5x_harness.system.field_types import LARGEST
from t5x_harness.system.texts import is_on, unfit
from t5x_harness.vertex.target import fault_of

Layer = Mapping[str, Any]
"""The options that one source sets, by field; those that it leaves open are None or missing."""


class SettingsError(ValueError):
    """Settings contradict each other, or one has an impossible value; the message names the option."""


def fitting(text: str, *, has_lines: bool = False) -> str:
    """Returns a text that can be a name or a path, or a Gin binding, which may have several lines.

    An empty text is refused, because it is a variable of the shell that is not set: ``--model_dir=$DIR``.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give a value, or leave the option out")
    if (why := unfit(text, has_lines=has_lines)) and not os.path.exists(text):
        raise argparse.ArgumentTypeError(f"{text!r} {why}")
    return text


def positive(text: str) -> float:
    """Parses a number above zero and up to :data:`LARGEST`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"must be a positive number{f' up to {LARGEST}' * (number > LARGEST)}, not {text!r}"
        )
    return number


def count(text: str) -> int:
    """Parses a whole number from 1 to :data:`LARGEST`."""
    return _whole(text, 1)


def from_zero(text: str) -> int:
    """Parses a whole number from 0 to :data:`LARGEST`."""
    return _whole(text, 0)


def whole(text: str) -> int:
    """Parses a whole number of 32 bits, such as a seed."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= LARGEST):
        raise argparse.ArgumentTypeError(f"must be a whole number of 32 bits, not {text!r}")
    return int(text)


def _whole(text: str, least: int) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if not least <= number <= LARGEST:
        bound = f"to {LARGEST}" if number > LARGEST else "up"
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} {bound}, not {text!r}")
    return number


def duration(text: str) -> int:
    """Parses a length of time into whole seconds."""
    try:
        return max(1, int(seconds_of(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def switch(text: str) -> bool:
    """Parses ``on`` or ``off``."""
    try:
        return is_on(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def tpu_slice(text: str) -> str:
    """Returns the name of a TPU slice that exists."""
    from t5x_harness.slices.slice import SliceError, get_slice

    try:
        get_slice(fitting(text))
    except SliceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def fault(text: str) -> str:
    """Returns the text of a fault that can be ordered."""
    from t5x_harness.spec import Fault

    try:
        Fault.from_text(fitting(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def cpu_isa(text: str) -> str:
    """Returns the name of a level of instructions that this CPU has."""
    from t5x_harness.runtime.cpu_isa import why_not

    level = fitting(text).lower().replace("_", ".")
    if why := why_not(level):
        raise argparse.ArgumentTypeError(f"{text!r}: {why}")
    return level


def folder(text: str) -> str:
    """Returns the absolute path of a folder, which has to exist before anything is run."""
    if not os.path.isdir(fitting(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: there is no folder {os.path.abspath(text)}")
    return os.path.abspath(text)


def buckets(text: str) -> str:
    """Returns the absolute path of a folder with a folder for each bucket, which the root of ``serve`` contains."""
    given = folder(text)
    found = buckets_in(given)
    if found != given:
        print(
            f"t5x-harness: the buckets of {text} are the folders in {found}, as serve --root has them", file=sys.stderr
        )
    return found


_PARSERS: Mapping[OptionForm, Callable[[str], Any]] = {
    OptionForm.FLAG: switch,
    OptionForm.COUNT: count,
    OptionForm.FROM_ZERO: from_zero,
    OptionForm.POSITIVE: positive,
    OptionForm.BUCKETS: buckets,
    OptionForm.BINDINGS: functools.partial(fitting, has_lines=True),
    OptionForm.SLICE: tpu_slice,
    OptionForm.FAULT: fault,
    OptionForm.CPU_ISA: cpu_isa,
}


def _parser_of(option: Option) -> Callable[[str], Any]:
    """Returns the parser of one word of an option's values."""
    if option.form is OptionForm.TARGET:
        return functools.partial(_part_of_target, option.field)
    return _PARSERS.get(option.form, fitting)


def _part_of_target(field: str, text: str) -> str:
    if fault := fault_of(field, fitting(text)):
        raise argparse.ArgumentTypeError(fault)
    return text


def argparse_arguments(option: Option) -> dict[str, Any]:
    """Returns the arguments of ``add_argument`` for an option; if no value is given, it is None or an empty list."""
    if option.form is OptionForm.FLAG:
        return {"action": "store_true", "default": None}
    about: dict[str, Any] = {
        "metavar": option.metavar,
        "choices": option.choices or None,
        "type": _parser_of(option),
    }
    if option.form.is_list:
        about |= {"action": "append", "default": []}
    return {name: value for name, value in about.items() if value is not None}


def from_word(option: Option, source: str, word: str) -> Any:
    """Reads the value of an option from a word that people wrote.

    Args:
      option: the option.
      source: the name of the option, variable, ini value or key, for messages.
      word: the text.

    Raises:
      SettingsError: the option does not accept the value.
    """
    if option.choices and word not in option.choices:
        others, last = ", ".join(option.choices[:-1]), option.choices[-1]
        raise SettingsError(f"{source} must be {others} or {last}, not {word!r}")
    return _read(_parser_of(option), source, word)


def _read(parser: Callable[[str], Any], source: str, word: str) -> Any:
    try:
        return parser(word)
    except argparse.ArgumentTypeError as error:
        raise SettingsError(f"{source} {error}") from None


def from_toml(option: Option, key: str, value: Any, root: Path) -> Any:
    """Reads the value of an option from ``[tool.t5x_harness]``.

    Args:
      option: the option, whose form is not a table.
      key: its name there, for messages.
      value: the TOML value.
      root: the folder of pyproject.toml, from which relative paths start.

    Raises:
      ValueError: the option does not accept the value; the message begins with the key.
    """
    if option.form.is_list:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"{key} has to be a list of strings, not {value!r}")
        items = [from_word(option, key, item) for item in value]
        return tuple(str(Path(root, item)) if option.form.is_path else item for item in items)
    if option.form is OptionForm.FLAG:
        if not isinstance(value, bool):
            raise ValueError(f"{key} has to be true or false, not {value!r}")
        return value
    if option.form is OptionForm.COUNT:
        if type(value) is not int or not 1 <= value <= LARGEST:
            bound = f"at least 1 and at most {LARGEST}" if isinstance(value, int) and value > LARGEST else "at least 1"
            raise ValueError(f"{key} has to be a whole number of seconds, {bound}, not {value!r}")
        return value
    if not isinstance(value, str):
        raise ValueError(f"{key} has to be a string, not {value!r}")
    if option.choices and value not in option.choices:
        raise ValueError(f"{key} {value!r} is none of {', '.join(option.choices)}")
    if option.form is OptionForm.BUCKETS:
        found = str(Path(root, _read(fitting, key, value)))
        if not os.path.isdir(found):
            raise ValueError(f"{key} {value!r}: there is no folder {found}")
        return buckets_in(found)
    text: str = from_word(option, key, value)
    return str(Path(root, text)) if option.form.is_path else text


def require_codes(codes: Iterable[str], name: str) -> None:
    """Checks codes of findings, and families of them.

    Raises:
      SettingsError: one does not exist; the message begins with the name.
    """
    from t5x_harness.findings.silencing import not_codes

    if problem := not_codes(tuple(codes), all_codes):
        raise SettingsError(f"{name}: {problem}")


def all_codes() -> tuple[str, ...]:
    """Returns the codes of all findings; it imports all rules, so it is only called if someone names a code."""
    from t5x_harness.rulebook import rules

    return rules.all_codes()
