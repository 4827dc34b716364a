"""Command line options and ini values of the plugin, made from the table of all options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from t5x_harness.settings.options import RUNS, Option, option

__all__ = [
    "OLD_NAMES",
    "add_options",
    "add_table",
    "is_annotated",
    "network_policy",
    "take_gin_flags",
    "values_of",
    "warn_of_old_names",
]

OLD_NAMES = "t5x_old_names"
"""Where pytest's options keep the old names that were used."""


class _OldName(argparse.Action):
    """Takes an option by its earlier name, and notes that."""

    def __init__(self, *args: Any, row: Option, **kwargs: Any) -> None:
        super().__init__(*args, nargs=0 if row.kind == "flag" else None, **kwargs)
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


def add_options(parser: pytest.Parser) -> None:
    """Declares everything about runs."""
    add_table(parser, parser.getgroup("t5x-harness", "T5X configs on an emulated TPU slice"), RUNS)


def add_table(parser: pytest.Parser, group: pytest.OptionGroup, rows: Iterable[Option]) -> None:
    """Declares the options and ini values of some rows of the table."""
    for row in rows:
        # House rules for help texts: start with a capital, no period at the end, name the default.
        text = row.full_help[0].upper() + row.full_help[1:]
        about: dict[str, Any] = {"dest": _dest(row), **row.of_argparse()}
        if row.pytest:
            group.addoption(*row.pytest, help=text, **about)
        if row.old:
            about.pop("action", None)
            group.addoption(row.old, action=_OldName, row=row, help=argparse.SUPPRESS, **about)
        if row.ini:
            parser.addini(row.ini, text, row.ini_type, "" if row.ini_type == "string" else [])


def values_of(config: pytest.Config, rows: Iterable[Option]) -> dict[str, Any]:
    """Returns what the command line says, which wins, and the ini file, by field; None or empty where neither does.

    Raises:
      pytest.UsageError: an ini value is none of those that there are.
    """
    values: dict[str, Any] = {}
    for row in (row for row in rows if row.pytest or row.ini):
        given = config.getoption(_dest(row)) if row.pytest else None
        if row.ini and row.kind == "list":
            kept = map(str, config.getini(row.ini))
            given = [*(given or ()), *kept] if row.ini_type == "paths" else [*kept, *(given or ())]
        elif row.ini and row.ini_type == "string" and given is None:
            given = _ini_value(config, row)
        values[row.field] = given
    return values


def _ini_value(config: pytest.Config, row: Option) -> Any:
    text: str = config.getini(row.ini)
    if not text:
        return None
    if row.choices and text not in row.choices:
        raise pytest.UsageError(f"{row.ini} must be {_either(row.choices)}, not {text!r}")
    try:
        return row.parse(text) if row.parse else text
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{row.ini} {error}") from None


def _either(values: Sequence[str]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}"


def _dest(row: Option) -> str:
    return f"t5x_{row.field}"


def warn_of_old_names(config: pytest.Config) -> None:
    """Warns of each old name on the command line, once for the session."""
    if not hasattr(config, "workerinput"):
        for old, new in getattr(config.option, OLD_NAMES, {}).items():
            warning = pytest.PytestDeprecationWarning(f"{old} is the old name of {new}, and will be removed: use {new}")
            config.issue_config_time_warning(warning, stacklevel=2)


def is_annotated(when: str, environment: Mapping[str, str]) -> bool:
    """Returns whether findings are to be printed as GitHub's workflow commands."""
    return when == "always" or (when == "auto" and environment.get("GITHUB_ACTIONS") == "true")


def take_gin_flags(arguments: list[str]) -> None:
    """Turns each ``--gin.NAME=VALUE`` of a command line into an option that pytest knows.

    Raises:
      pytest.UsageError: one has not this form.
    """
    if any(argument.startswith("--gin.") for argument in arguments):
        from t5x_harness.commands.arguments import UsageError, rewrite_gin

        try:
            arguments[:] = rewrite_gin(arguments)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None


def network_policy(config: pytest.Config) -> str:
    """``forbid`` or ``allow``: what holds for tests without the ``network`` marker.

    Raises:
      pytest.UsageError: the ini value is neither.
    """
    row = option("network")
    return values_of(config, [row])[row.field] or row.default
