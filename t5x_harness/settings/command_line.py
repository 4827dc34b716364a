"""Options as arguments of commands, and of pytest with its ini values.

Pytest passes in the functions that declare and read them, so this module does not need pytest.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.settings.configuration import Configuration, layer_of, layer_of_variables, merged
from t5x_harness.settings.forms import Layer, SettingsError, argparse_arguments, from_word
from t5x_harness.settings.options import JOBS, RUNS, SessionOptions, option_of
from t5x_harness.settings.project import ProjectConfig
from t5x_harness.spec.option import Option, OptionForm, options_of


def add_to_command(
    parser: argparse.ArgumentParser, options: Iterable[Option], command: str, groups: dict[str, argparse._ArgumentGroup]
) -> None:
    """Adds the arguments of a command to its parser, under their headings.

    Args:
      parser: the command's parser.
      options: the options to add; those that the command does not take are left out.
      command: the command's name.
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
    """Returns a command's arguments, adding the implied value of those that are given without one.

    Otherwise, ``--aot run.gin`` would use the file as its value.
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
    """Returns the values that variables set for a command's options whose arguments are not given.

    Raises:
      SettingsError: a variable has a value that its option does not take.
    """
    taken = [option for option in options if option.field in arguments and arguments[option.field] is None]
    return layer_of_variables(taken, environment)


def session_options(arguments: Mapping[str, Any]) -> SessionOptions:
    """Returns the options that a command's parsed arguments set for all of its runs together."""
    return SessionOptions(**merged(options_of(SessionOptions), [arguments]))


def configuration_of(
    arguments: Mapping[str, Any], project: ProjectConfig, environment: Mapping[str, str], here: Path, cwd: Path
) -> Configuration:
    """Returns the configuration for the runs of a command.

    Args:
      arguments: the parsed arguments, by field.
      project: the project.
      environment: the variables of the process; only those of options that the command takes count.
      here: the working directory.
      cwd: the folder in which the runs work.

    Raises:
      SettingsError: a code of findings does not exist, or a variable has an impossible value.
    """
    given = layer_of(RUNS, arguments, shell_name, here, cwd)
    variables = from_environment(RUNS, arguments, environment)
    return Configuration((given, variables), project, here, cwd, shell_name)


OLD_NAMES = "t5x_old_names"
"""The attribute of pytest's options with the old names that were used, each with its new name."""

_GROUPS = (
    ("t5x-harness", "T5X configs on an emulated TPU slice", RUNS),
    ("t5x-harness-tpu", "tests promoted to TPU jobs on Vertex AI (-m tpu)", JOBS),
)


class _OldName(argparse.Action):
    """Accepts an option by its earlier name, and records that."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, option: Option, **kwargs: Any) -> None:
        nargs = 0 if option.form is OptionForm.FLAG else None
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
        self._option = option

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Does the same as the option with its new name."""
        option = self._option
        if option.form is OptionForm.FLAG:
            values = True
        elif option.form.is_list:
            values = [*(getattr(namespace, self.dest) or ()), values]
        setattr(namespace, self.dest, values)
        setattr(namespace, OLD_NAMES, {**getattr(namespace, OLD_NAMES, {}), option.old: option.pytest[0]})


def add_to_pytest(group: Callable[[str, str], Any], add_ini: Callable[..., None]) -> None:
    """Declares every option and ini value.

    Args:
      group: the parser's ``getgroup``.
      add_ini: its ``addini``.
    """
    for name, title, options in _GROUPS:
        for option in options:
            add_option_to_pytest(option, group(name, title).addoption, add_ini)


def add_option_to_pytest(option: Option, add_option: Callable[..., None], add_ini: Callable[..., None]) -> None:
    """Declares an option of pytest, with its ini value.

    Args:
      option: the option; nothing is declared for one that pytest does not have.
      add_option: the group's ``addoption``.
      add_ini: the parser's ``addini``.
    """
    # House rules for help texts: start with a capital, no period at the end, name the default.
    text = option.full_help[0].upper() + option.full_help[1:]
    about = {"dest": _dest(option), **argparse_arguments(option)}
    # Words are checked when a session reads them: pytest's own errors are four lines for each.
    about.pop("type", None)
    if choices := about.pop("choices", ()):
        about.setdefault("metavar", f"{{{','.join(choices)}}}")
    if option.pytest:
        add_option(*option.pytest, help=text, **about)
    if option.old:
        about.pop("action", None)
        add_option(option.old, action=_OldName, option=option, help=argparse.SUPPRESS, **about)
    if option.ini:
        lines = option.form.is_list or option.form is OptionForm.RESOURCES
        kind = "paths" if option.form.is_path else "linelist" if lines else "string"
        add_ini(option.ini, text, kind, "" if kind == "string" else [])


def pytest_name(option: Option) -> str:
    """Returns the name of an option as it is typed for pytest."""
    return option.pytest[0]


def layers_of(
    options: Iterable[Option],
    get_option: Callable[[str], Any],
    get_ini: Callable[[str], Any],
    environment: Mapping[str, str],
    here: Path,
    cwd: Path,
) -> tuple[Layer, ...]:
    """Returns the layers of the command line, variables and ini values, strongest first.

    Args:
      options: the options to read.
      get_option: the configuration's ``getoption``.
      get_ini: its ``getini``.
      environment: the variables of the process.
      here: the folder in which pytest is called.
      cwd: the folder in which runs work.

    Raises:
      SettingsError: an option, a variable or an ini value is impossible.
    """
    options = [option for option in options if option.pytest or option.ini]
    given = {
        option.field: _from_words(option, pytest_name(option), get_option(_dest(option)))
        for option in options
        if option.pytest
    }
    kept = {
        option.field: _from_words(option, option.ini, get_ini(option.ini) or None) for option in options if option.ini
    }
    return (
        layer_of(options, given, pytest_name, here, cwd),
        layer_of_variables(options, environment),
        layer_of(options, kept, lambda option: option.ini, here, cwd),
    )


def _from_words(option: Option, source: str, value: Any) -> Any:
    if isinstance(value, list):
        return [from_word(option, source, str(word)) for word in value]
    return from_word(option, source, value) if isinstance(value, str) else value


def _dest(option: Option) -> str:
    return f"t5x_{option.field}"
