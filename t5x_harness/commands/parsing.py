"""The parser of all commands, which refuses what no option takes, and names the option or the choice that is meant."""

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from t5x_harness.findings.printable import printable
from t5x_harness.settings.forms import fitting
from t5x_harness.system.misspelling import did_you_mean

_CHOICE = re.compile(
    r"invalid choice: (?P<word>'(?:[^'\\]|\\.)*'|\"[^\"]*\") \(choose from (?P<choices>.*)\)\Z", re.DOTALL
)
_WORD = re.compile(r"[^\s',]+")
_NAME = re.compile(r"--?[A-Za-z][\w-]*")


class _Checked(argparse.Action):
    """Keeps the value of an option or of an argument after checking what is wrong for each of them.

    Two different values of an option that has one are refused.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Checks the words, and keeps them."""
        if self.nargs != argparse.REMAINDER:  # another program's words
            for word in values if isinstance(values, list) and values else [values]:
                self._check(word, option_string)
        if option_string is None:
            setattr(namespace, self.dest, values)
            return
        given = given_in(namespace)
        self._keep(namespace, values, given)
        given[self.dest] = (option_string, values)

    def _keep(self, namespace: argparse.Namespace, values: Any, given: dict[str, tuple[str, Any]]) -> None:
        # Of T5X's own options, as --model_dir, the last one counts, as absl has it.
        is_own = not any("_" in name for name in self.option_strings)
        if is_own and self.dest in given and given[self.dest][1] != values:
            raise argparse.ArgumentError(
                self, f"is given twice, as {shown(given[self.dest][1])} and {shown(values)}: leave one out"
            )
        setattr(namespace, self.dest, values)

    def _check(self, word: Any, option_string: str | None) -> None:
        is_parsed = isinstance(word, tuple) and bool(word)  # a part, such as the command of an image, may be empty
        for part in filter(None, word) if is_parsed else ["" if word == () else word]:
            self._check_text(os.fspath(part) if isinstance(part, Path) else part, option_string)

    def _check_text(self, text: Any, option_string: str | None) -> None:
        if not isinstance(text, str) or (not text and option_string is None):
            return
        try:
            fitting(text, has_lines="=" in str(self.metavar))  # a binding, or a variable of a container
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None


class _CheckedList(_Checked):
    """The same for an option that may be repeated."""

    def _keep(self, namespace: argparse.Namespace, values: Any, given: dict[str, tuple[str, Any]]) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), values])


class CheckedParser(argparse.ArgumentParser):
    """A parser whose every argument is checked, and whose errors name the nearest choice."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.register("action", None, _Checked)
        self.register("action", "store", _Checked)
        self.register("action", "append", _CheckedList)

    def error(self, message: str) -> NoReturn:
        """Prints a message as one line, as for other mistakes in usage, and exits with 2."""
        if found := _CHOICE.search(message):
            word = found["word"]
            choices = _WORD.findall(found["choices"])
            message = (
                f"{message[: found.start()]}invalid choice: {word}{did_you_mean(word[1:-1], choices)} (choose from "
            )
            message += f"{', '.join(choices)})"
        line = printable(message).replace("\n", "\\n")
        self.exit(2, f"t5x-harness: {line}\n")

    @property
    def options(self) -> set[str]:
        """The names of all options, from the help."""
        lines = (line[2:] for line in self.format_help().splitlines() if line.startswith("  -"))
        return {name for line in lines for name in _NAME.findall(line.split("  ")[0])}

    @property
    def takes_words(self) -> bool:
        """Whether there may be several arguments that are not options."""
        return any(dots in self.format_usage() for dots in (" ...]", " …]"))


def given_in(namespace: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """Returns the options that are given, each by the name of its value: as it was typed, and the value."""
    given: dict[str, tuple[str, Any]] = vars(namespace).setdefault("given", {})
    return given


def shown(value: Any) -> str:
    """Returns a value for a message, in which its quotes show blanks and escapes."""
    text = value if isinstance(value, str) else str(value)
    return repr(text)


def unknown_option(word: str, command: str, own: Iterable[str], others: Callable[[], dict[str, Iterable[str]]]) -> str:
    """Returns a message for an option that a command does not have.

    Args:
      word: the word that was typed.
      command: the command.
      own: the options of the command.
      others: returns those of the other commands.
    """
    name = word.partition("=")[0]
    if near := did_you_mean(name, own):
        return f"unrecognized arguments: {word}{near}"
    if having := [other for other, options in others().items() if name in options]:
        return f"unrecognized arguments: {word} is of {', '.join(having)}, not of {command}"
    return f"unrecognized arguments: {word}; t5x-harness {command} --help lists the options"


def naming_option(message: str, given: dict[str, tuple[str, Any]]) -> str:
    """Returns a check's message with the option in front whose value it shows, unless it names an option itself."""
    names = [name for name, _ in given.values()]
    if any(re.search(rf"{re.escape(name)}(?![\w-])", message) for name in names):
        return message
    for field, (name, _) in given.items():
        if message.startswith(f"{field} "):
            return f"{name}{message.removeprefix(field)}"
    for name, value in given.values():
        if isinstance(value, str) and (message.startswith(f"{value}:") or _shows(message, value)):
            return f"{name}: {message}"
    return message


def _shows(message: str, value: str) -> bool:
    return any(quoted in message for quoted in (repr(value), f'"{value}"'))
