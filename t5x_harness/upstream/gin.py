"""Private names of Gin that concern its bindings, its readers of files, and the configurables that it was calling."""

import dataclasses
import inspect
import re
from collections.abc import Callable, MutableSequence
from typing import Any

from gin import config


def bound_values() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns Gin's own table of parameters with their values, by scope and selector."""
    return config._CONFIG


def taken_values() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the parameters that calls left to Gin so far, by scope and selector: its operative config."""
    return config._OPERATIVE_CONFIG


def file_readers() -> MutableSequence[tuple[Callable[[str], Any], Callable[[str], bool]]]:
    """Returns Gin's own list of readers, each with a function that says whether it can read a file."""
    return config._FILE_READERS


@dataclasses.dataclass(frozen=True)
class ConfigurableCall:
    """A configurable that Gin was calling when an exception was raised.

    Attributes:
      name: its name without the module, such as ``DatasetConfig``.
      scope: the scopes that it was called in; empty for none.
    """

    name: str
    scope: str


_CALL = re.compile(r"^  In call to configurable '([^']+)' \(.*\)(?: in scope '([^']+)')?$", re.MULTILINE)


def calls_in(text: str) -> list[ConfigurableCall]:
    """Parses the configurables that were being called from an exception's text, innermost first."""
    return [ConfigurableCall(name, scope) for name, scope in _CALL.findall(text)]


def hidden_exception(error: BaseException) -> BaseException | None:
    """Returns the original of an exception that Gin has wrapped to add its place, without its causes."""
    text = vars(type(error)).get("__str__")
    if not (inspect.isfunction(text) and text.__module__ == "gin.utils"):
        return None
    hidden = inspect.getclosurevars(text).nonlocals.get("exception")
    return hidden if isinstance(hidden, BaseException) else None
