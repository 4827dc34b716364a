"""The user's own function or class that refused a call: Python raises where it is called, and not in it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from t5x_harness.resolve.error_texts import full_text
from t5x_harness.resolve.frames import CodePlace, causes, root_cause
from t5x_harness.resolve.parties import FRONT, is_users, party_of, shown_path

_OF_CALL = re.compile(
    r"takes (?:no|\d+|from \d+ to \d+) (?:keyword |positional )?arguments?\b|missing \d+ required|missing a required"
    r"|got (?:an unexpected keyword|multiple values for|some positional-only)|too many positional arguments"
)
_NAME = re.compile(r"([A-Za-z_][\w.]*)\(\) (?:takes|missing|got)\b")
_ABSTRACT = re.compile(r"Can't instantiate abstract class (\w+)")


def users_callee(error: BaseException) -> CodePlace | None:
    """Returns where the user defines what does not take the arguments it is called with, or lacks what it must have.

    Args:
      error: any exception.

    Returns:
      None if the exception is about something else, or that is not the user's.
    """
    cause = root_cause(error)
    text = full_text(cause)
    if not isinstance(cause, TypeError):
        return None
    if named := _ABSTRACT.search(text):
        return next((place for found in _called(named[1]) if (place := _place(found))), None)
    if not _OF_CALL.search(text):
        return None
    named = _NAME.search(text)
    candidates = _called(named[1]) if named else _held(error)
    return next((place for found in candidates if (place := _place(found))), None)


def _called(name: str) -> Iterator[Any]:
    """Yields what has a qualified name in a module of the user's."""
    first, *rest = name.split(".")
    for module in list(sys.modules.values()):
        if is_users(getattr(module, "__file__", None) or "<none>") and first in vars(module):
            yield functools.reduce(lambda found, part: getattr(found, part, None), rest, vars(module)[first])


def _held(error: BaseException) -> Iterator[Any]:
    """Yields what the variables of the libraries' functions on the stack hold, from the innermost on."""
    for link in reversed(list(causes(error))):
        for frame, _ in reversed(list(traceback.walk_tb(link.__traceback__))):
            if party_of(frame.f_code.co_filename) in FRONT:
                yield from frame.f_locals.values()


def _place(found: Any) -> CodePlace | None:
    while isinstance(found, functools.partial):
        found = found.func
    found = inspect.unwrap(found) if callable(found) else found
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        return None
    try:
        file, (_, line) = inspect.getsourcefile(found), inspect.getsourcelines(found)
    except (OSError, TypeError):  # of native code, or of no file
        return None
    return CodePlace(shown_path(file), line, found.__name__) if file and is_users(file) else None
