"""Layers: what each source says of options, and what holds by all of them.

A layer has values by the options' fields. A field that its source leaves open is None or not in it. Layers stand in a
row, the strongest first: a test's own arguments, the command line, variables, ini values, a declared run, the project.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.settings.forms import SettingsError, from_word
from t5x_harness.spec.option import Option, OptionForm

Layer = Mapping[str, Any]


def layer_of(
    options: Iterable[Option], given: Mapping[str, Any], name: Callable[[Option], str], here: Path, cwd: Path
) -> Layer:
    """Makes a layer of what the arguments or ini values of this process say.

    Args:
      options: those that count.
      given: the values, by field; None, an empty text and an empty list say nothing.
      name: gives the name of an option in the source, for messages.
      here: the folder where relative paths of the source begin.
      cwd: the folder that runs work in.

    Raises:
      SettingsError: a code of findings does not exist.
    """
    found: dict[str, Any] = {}
    for option in options:
        value = given.get(option.field)
        if option.form.is_separated:
            value = [part for text in value or () for part in map(str.strip, str(text).split(",")) if part]
        if value is None or value in ("", [], ()):
            continue
        if option.form is OptionForm.CODES:
            require_codes(value, name(option))
        elif option.form.is_path:
            value = (
                [_placed(option.form, path, here, cwd) for path in value]
                if option.form.is_list
                else _placed(option.form, value, here, cwd)
            )
        found[option.field] = tuple(value) if option.form.is_list else value
    return found


def layer_of_variables(options: Iterable[Option], environment: Mapping[str, str]) -> Layer:
    """Makes a layer of environment variables.

    Raises:
      SettingsError: a variable has a value that its option does not take.
    """
    return {
        option.field: from_word(option, option.variable, word)
        for option in options
        if option.variable and (word := environment.get(option.variable))
    }


def merged(options: Iterable[Option], layers: Iterable[Layer]) -> dict[str, Any]:
    """Returns what holds by all layers, the strongest of which is the first; a field that none sets is not there."""
    layers = tuple(layers)
    found: dict[str, Any] = {}
    for option in options:
        values = [value for layer in layers if (value := layer.get(option.field)) not in (None, "")]
        if values and isinstance(values[0], tuple) and option.joined:
            ordered = values if option.joined == "before" else values[::-1]
            found[option.field] = tuple(item for part in ordered for item in part)
        elif values:
            found[option.field] = values[0]
    return found


def require_codes(codes: Iterable[str], name: str) -> None:
    """Checks codes of findings, and families of them.

    Raises:
      SettingsError: one does not exist; the message begins with the name.
    """
    from t5x_harness.findings.silencing import not_codes

    if problem := not_codes(tuple(codes), all_codes):
        raise SettingsError(f"{name}: {problem}")


def all_codes() -> tuple[str, ...]:
    """Returns the codes of all findings; it imports all rules, so it is called only if somebody names a code."""
    from t5x_harness.rulebook import rules

    return rules.all_codes()


def _placed(form: OptionForm, path: str, here: Path, cwd: Path) -> str:
    """Returns a path as runs find it; addresses, and paths where runs begin at the same folder, are left as given."""
    if form in (OptionForm.ADDRESS, OptionForm.ADDRESSES) and ("://" in path or here == cwd):
        return path
    return os.path.join(here, path)
