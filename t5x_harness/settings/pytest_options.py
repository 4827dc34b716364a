"""The table of all options as pytest takes them; it hands in what declares and reads them, so this needs no pytest."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from t5x_harness.settings.options import JOBS, RUNS, Option

OLD_NAMES = "t5x_old_names"
"""Where pytest's options keep the old names that were used, each with the new one."""


class _OldName(argparse.Action):
    """Takes an option by its earlier name, and notes that."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, row: Option, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0 if row.kind == "flag" else None, **kwargs)
        self._row = row

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Does what the option does by its new name."""
        row = self._row
        value = {"flag": True, "list": [*(getattr(namespace, self.dest) or ()), values], "value": values}[row.kind]
        setattr(namespace, self.dest, value)
        setattr(namespace, OLD_NAMES, {**getattr(namespace, OLD_NAMES, {}), row.old: row.pytest[0]})


_GROUPS = (
    ("t5x-harness", "T5X configs on an emulated TPU slice", RUNS),
    ("t5x-harness-tpu", "tests promoted to TPU jobs on Vertex AI (-m tpu)", JOBS),
)


def add_to_pytest(group: Callable[[str, str], Any], add_ini: Callable[..., None]) -> None:
    """Declares every option and ini value.

    Args:
      group: the parser's ``getgroup``.
      add_ini: its ``addini``.
    """
    for name, title, rows in _GROUPS:
        for row in rows:
            _add(row, group(name, title).addoption, add_ini)


def _add(row: Option, add_option: Callable[..., None], add_ini: Callable[..., None]) -> None:
    # House rules for help texts: start with a capital, no period at the end, name the default.
    text = row.full_help[0].upper() + row.full_help[1:]
    about: dict[str, Any] = {"dest": _dest(row), **row.of_argparse()}
    if row.pytest:
        add_option(*row.pytest, help=text, **about)
    if row.old:
        about.pop("action", None)
        add_option(row.old, action=_OldName, row=row, help=argparse.SUPPRESS, **about)
    if row.ini:
        add_ini(row.ini, text, row.ini_type, "" if row.ini_type == "string" else [])


def values_of(
    rows: Iterable[Option], option: Callable[[str], Any], ini: Callable[[str], Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Returns what options, variables and ini values say, by field; the first that says something counts.

    Lists of options and ini values add up. A value is None, or empty, where nothing says it.

    Args:
      rows: of the table.
      option: the configuration's ``getoption``.
      ini: its ``getini``.
      environment: variables of the process.

    Raises:
      SettingsError: a variable or an ini value is none of those that there are.
    """
    values: dict[str, Any] = {}
    for row in (row for row in rows if row.pytest or row.ini):
        given = option(_dest(row)) if row.pytest else None
        kept = ini(row.ini) if row.ini else None
        if row.kind == "list":
            words, more = list(given or ()), [*map(str, kept or ())]
            given = words + more if row.ini_type == "paths" else more + words
        elif given is None:
            variable = environment.get(row.variable) if row.variable else None
            given = row.value_of(row.variable, variable) if variable else row.value_of(row.ini, kept)
        values[row.field] = given
    return values


def _dest(row: Option) -> str:
    return f"t5x_{row.field}"
