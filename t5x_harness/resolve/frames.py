"""What an exception shows by itself: its causes, the one to report, the places it passed through, who raised it."""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from t5x_harness.resolve.error_texts import full_text
from t5x_harness.resolve.parties import FRONT, HARNESS, PYTHON, USER, is_users, library_path, party_of, shown_path
from t5x_harness.spec import Location
from t5x_harness.upstream.gin import hidden_exception
from t5x_harness.upstream.jax import is_traceback_carrier

_RAISE = dis.opmap["RAISE_VARARGS"]
_LOOKUPS = (LookupError, AttributeError, StopIteration)
"""What a lookup raises; code that catches it often raises an error that explains more."""

_OF_THE_MACHINE = (OSError, ImportError, MemoryError)
"""Exceptions that a call may raise through no mistake of its caller."""

_REFUSED_CALL = re.compile(
    r"takes (?:no|\d+|from \d+ to \d+) (?:keyword |positional )?arguments?\b|missing \d+ required|missing a required"
    r"|got (?:an unexpected keyword|multiple values for|some positional-only)|too many positional arguments"
)
_REFUSING_NAME = re.compile(r"([A-Za-z_][\w.]*)\(\) (?:takes|missing|got)\b")
_ABSTRACT = re.compile(r"Can't instantiate abstract class (\w+)")


@dataclasses.dataclass(frozen=True)
class CodePlace:
    """A line of code that an exception passed through.

    Attributes:
      file: as the user would write it.
      line: counted from 1.
      function: the function's name, or a name in angle brackets for a module or a lambda.
      party: whose code it is; see :func:`t5x_harness.resolve.parties.party_of`.
    """

    file: str
    line: int
    function: str
    party: str = USER

    @property
    def location(self) -> Location:
        """The place as findings name it."""
        return Location(self.file, self.line)

    @property
    def is_named(self) -> bool:
        """Whether the code is a function with a name, and not a module's own statements, a lambda or the like."""
        return not self.function.startswith("<") and self.function != "None"

    def __str__(self) -> str:
        return f"{self.function} in {self.location}" if self.is_named else str(self.location)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the exception and its causes, outermost first.

    They include the exceptions that gin hides behind its own, and the first exception of a group.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        inner = link.exceptions[0] if isinstance(link, BaseExceptionGroup) else hidden_exception(link)
        link = inner or link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def root_cause(error: BaseException) -> BaseException:
    """Returns the exception to report: the first one that was raised, not one raised while it was handled.

    A later one is better only if the same party raised it on purpose to explain the first: with ``raise ... from``, or
    after it caught a failed lookup.
    """
    chain = [link for link in causes(error) if not is_traceback_carrier(link)]
    first = chain.pop() if chain else error
    while chain and _explains(chain[-1], first):
        first = chain.pop()
    return first


def _explains(later: BaseException, first: BaseException) -> bool:
    if hidden_exception(later) is not None or isinstance(later, BaseExceptionGroup) or not full_text(later).strip():
        return False
    repeats = full_text(first).strip() and full_text(first) in full_text(later)
    if repeats and not isinstance(first, KeyError):  # whose text is the key alone
        return False
    if not (later.__cause__ is first or isinstance(first, _LOOKUPS)) or not is_deliberate(later):
        return False
    return _raising_party(later) == _raising_party(first)


def _raising_party(error: BaseException) -> str:
    """Returns who raised an exception; Python's own library is passed over, because it raises for its caller."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((p for frame in reversed(frames) if (p := party_of(frame.filename)) != PYTHON), PYTHON)


def is_deliberate(error: BaseException) -> bool:
    """Tells whether a ``raise`` statement raised an exception, and not an operation that failed."""
    entry = error.__traceback__
    if entry is None:
        return True
    while entry.tb_next is not None:
        entry = entry.tb_next
    return entry.tb_lasti >= 0 and entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISE


def places(error: BaseException) -> Iterator[CodePlace]:
    """Yields the places that the exception and its causes passed through, outermost first within each cause."""
    for link in causes(error):
        for frame in traceback.extract_tb(link.__traceback__):
            yield CodePlace(library_path(frame.filename), frame.lineno or 0, frame.name, party_of(frame.filename))


def functions(error: BaseException) -> list[str]:
    """Returns the names of the functions that the exception and its causes passed through."""
    return [place.function for place in places(error)]


def user_frame(error: BaseException) -> CodePlace | None:
    """Returns the innermost frame of the user's own code in the chain of causes, or None if there is none."""
    innermost = next((place for place in reversed(list(places(error))) if place.party == USER), None)
    traced = next((place for place in reversed(traced_places(error)) if place.party == USER), None)
    if traced is not None and traced.function == "None" and innermost is not None:
        return dataclasses.replace(traced, function=innermost.function)
    return traced or innermost


def library_frame(error: BaseException) -> CodePlace | None:
    """Returns the innermost frame in a library whose functions configs name, or None if there is none."""
    for way in (traced_places(error), list(places(root_cause(error))), list(places(error))):
        found = [place for place in way if place.party in FRONT]
        if found:
            return ([place for place in found if place.party != "Gin"] or found)[-1]
    return None


def traced_places(error: BaseException) -> list[CodePlace]:
    """Returns the places that TensorFlow names in the text of an error in a traced function.

    TensorFlow runs a rewritten copy of such a function, so the traceback itself does not have them.
    """
    for link in reversed(list(causes(error))):
        found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', full_text(link))
        if found:
            return [CodePlace(library_path(file), int(line), name, party_of(file)) for file, line, name in found]
    return []


def raised_by_user_code(error: BaseException) -> bool:
    """Tells whether the user's code was running when the exception was raised, or was traced by TensorFlow."""
    frames = traceback.extract_tb(root_cause(error).__traceback__)
    return any(is_users(frame.filename) for frame in frames) or any(p.party == USER for p in traced_places(error))


def raised_by_harness(error: BaseException) -> bool:
    """Tells whether an operation of the harness's own code failed, rather than one of T5X or of the user.

    It does not count if the harness raised on purpose, because it refuses a value, or if the machine refused something.
    """
    cause = root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    by = [party for frame in frames if (party := party_of(frame.filename)) in (USER, HARNESS, *FRONT)]
    if not by or by[-1] != HARNESS or isinstance(cause, _OF_THE_MACHINE) or _is_of_tensorflow(cause):
        return False
    by_mistake = isinstance(cause, AssertionError) or not is_deliberate(cause)
    return by_mistake or party_of(frames[-1].filename) != HARNESS


def _is_of_tensorflow(error: BaseException) -> bool:
    """Tells whether an exception comes from one of TensorFlow's operations; most often it is about a file."""
    return any(kind.__name__ == "OpError" for kind in type(error).__mro__)


def passed_through_t5x(error: BaseException) -> bool:
    """Tells whether T5X was running when an exception was raised."""
    return any(place.party == "T5X" for place in places(error))


def users_callee(error: BaseException) -> CodePlace | None:
    """Finds the user's own function or class that refused a call, which Python reports only where it is called.

    Args:
      error: any exception.

    Returns:
      Where it is defined, or None if the exception is about something else or the callee is not the user's.
    """
    cause = root_cause(error)
    text = full_text(cause)
    if not isinstance(cause, TypeError):
        return None
    if abstract := _ABSTRACT.search(text):
        candidates = _named_in_users_modules(abstract[1])
    elif not _REFUSED_CALL.search(text):
        return None
    elif refusing := _REFUSING_NAME.search(text):
        candidates = _named_in_users_modules(refusing[1])
    else:
        candidates = _held_by_libraries(error)
    found = (definition_of(candidate) for candidate in candidates)
    return next((place for place in found if place is not None and place.party == USER), None)


def _named_in_users_modules(name: str) -> Iterator[Any]:
    """Yields what has a qualified name in a module of the user's."""
    first, *rest = name.split(".")
    for module in list(sys.modules.values()):
        if is_users(getattr(module, "__file__", None) or "<none>") and first in vars(module):
            yield functools.reduce(lambda found, part: getattr(found, part, None), rest, vars(module)[first])


def _held_by_libraries(error: BaseException) -> Iterator[Any]:
    """Yields the values of the libraries' local variables on the stack, innermost first."""
    for link in reversed(list(causes(error))):
        for frame, _ in reversed(list(traceback.walk_tb(link.__traceback__))):
            if party_of(frame.f_code.co_filename) in FRONT:
                yield from frame.f_locals.values()


def definition_of(found: Any) -> CodePlace | None:
    """Returns where a function or class is defined, whatever partials and decorators are around it.

    Returns None for anything else, and for native code.
    """
    while isinstance(found, functools.partial):
        found = found.func
    found = inspect.unwrap(found) if callable(found) else found
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        return None
    try:
        file, (_, line) = inspect.getsourcefile(found), inspect.getsourcelines(found)
    except (OSError, TypeError):  # it is native code, or has no file
        return None
    return CodePlace(shown_path(file), line, found.__name__, party_of(file)) if file else None
