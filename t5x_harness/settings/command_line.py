"""Options as arguments of commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.settings.configuration import Configuration
from t5x_harness.settings.forms import SettingsError, argparse_arguments
from t5x_harness.settings.layers import Layer, layer_of, layer_of_variables, merged
from t5x_harness.settings.options import JOBS, RUNS, SessionOptions, option_of
from t5x_harness.settings.project import ProjectConfig
from t5x_harness.spec.option import Option, options_of


def add_to_command(
    parser: argparse.ArgumentParser, options: Iterable[Option], command: str, groups: dict[str, argparse._ArgumentGroup]
) -> None:
    """Adds the arguments of a command to its parser, under their headings.

    Args:
      parser: of the command.
      options: those to add; those that the command does not take are left out.
      command: its name.
      groups: the groups that the parser has, by heading; new ones are added to it.
    """
    for option in options:
        if option.shell and command in option.commands:
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            _add(groups[option.group], option)


def add_option(parser: argparse._ActionsContainer, field: str) -> None:
    """Adds one option to a command that takes no others."""
    _add(parser, option_of(field))


def _add(parser: argparse._ActionsContainer, option: Option) -> None:
    parser.add_argument(*option.shell, dest=option.field, help=option.full_help, **argparse_arguments(option))


def with_values(arguments: Iterable[str]) -> list[str]:
    """Returns a command's arguments, with the value of those that stand for one without naming it.

    ``--aot run.gin`` would take the file for its value.
    """
    bare = {name: option.bare for option in (*RUNS, *JOBS) if option.bare is not None for name in option.shell}
    return [f"{argument}={bare[argument]}" if argument in bare else argument for argument in arguments]


def rewrite_gin(arguments: Sequence[str]) -> list[str]:
    """Turns ``--gin.NAME=VALUE`` into ``--gin_bindings=NAME = VALUE``, as T5X does.

    Raises:
      SettingsError: an argument has no ``=``, no name, or ``--gin.`` twice.
    """
    rewritten = []
    for argument in arguments:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not equals or not name:
                raise SettingsError(f"{argument}: a gin binding has the form --gin.NAME=VALUE")
            if name.startswith(("--gin.", "gin.")):
                raise SettingsError(f"{argument}: --gin. stands there twice, write --{name.removeprefix('--')}={value}")
            rewritten.append(f"--gin_bindings={name} = {value}")
        else:
            rewritten.append(argument)
    return rewritten


def shell_name(option: Option) -> str:
    """Returns the name of an option as it is typed for a command."""
    return option.shell[0]


def from_environment(options: Iterable[Option], arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Layer:
    """Returns what variables set of the options that a command takes and whose arguments are not given.

    Raises:
      SettingsError: a variable has a value that its option does not take.
    """
    taken = [option for option in options if option.field in arguments and arguments[option.field] is None]
    return layer_of_variables(taken, environment)


def session_options(arguments: Mapping[str, Any]) -> SessionOptions:
    """Returns what a command's parsed arguments set for all of its runs together."""
    return SessionOptions(**merged(options_of(SessionOptions), [arguments]))


def configuration_of(
    arguments: Mapping[str, Any], project: ProjectConfig, environment: Mapping[str, str], here: Path, cwd: Path
) -> Configuration:
    """Returns what is set for the runs of a command.

    Args:
      arguments: parsed, by field.
      project: the project.
      environment: variables of the process; those count whose options the command takes.
      here: the working directory.
      cwd: the folder that the runs work in.

    Raises:
      SettingsError: a variable or a code of findings does not exist or has no such value.
    """
    given = layer_of(RUNS, arguments, shell_name, here, cwd)
    variables = from_environment(RUNS, arguments, environment)
    return Configuration((given, variables), project, here, cwd, shell_name)
