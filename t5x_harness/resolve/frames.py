"""What an exception shows by itself: its causes, the one to report, and the places that it passed through."""

from __future__ import annotations

import dataclasses
import dis
import re
import traceback
from collections.abc import Iterator

from t5x_harness.resolve.error_texts import full_text
from t5x_harness.resolve.parties import FRONT, HARNESS, PYTHON, USER, is_users, library_path, party_of
from t5x_harness.spec import Location
from t5x_harness.upstream.gin import hidden_exception
from t5x_harness.upstream.jax import is_traceback_carrier

_RAISE = dis.opmap["RAISE_VARARGS"]
_LOOKUPS = (LookupError, AttributeError, StopIteration)
"""What a lookup raises; code that catches it often raises an error that explains more."""

_OF_THE_MACHINE = (OSError, ImportError, MemoryError)
"""Exceptions that a call may raise through no mistake of its caller."""


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
        """Whether the code is a function with a name; a module's own statements, a lambda and the like are not."""
        return not self.function.startswith("<") and self.function != "None"

    def __str__(self) -> str:
        return f"{self.function} in {self.location}" if self.is_named else str(self.location)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the exception and its causes, outermost first.

    Exceptions that gin hides behind its own are among them, and the first one of a group.
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

    A later one is better only if the same party raised it on purpose to explain the first: ``raise ... from``, or a
    failed lookup that it caught.
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
        return False  # it only repeats the first
    if not (later.__cause__ is first or isinstance(first, _LOOKUPS)) or not is_deliberate(later):
        return False
    parties = [_raising_party(link) for link in (later, first)]
    return parties[0] == parties[1]


def _raising_party(error: BaseException) -> str:
    """Returns who raised an exception, Python's own library left out: it raises for its caller."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((p for frame in reversed(frames) if (p := party_of(frame.filename)) != PYTHON), PYTHON)


def is_deliberate(error: BaseException) -> bool:
    """Returns whether a ``raise`` statement raised an exception, and not an operation that failed."""
    entry = error.__traceback__
    if entry is None:
        return True
    while entry.tb_next is not None:
        entry = entry.tb_next
    return entry.tb_lasti >= 0 and entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISE


def places(error: BaseException) -> Iterator[CodePlace]:
    """Yields the places that the exception and its causes passed through: outermost first, within each cause."""
    for link in causes(error):
        for frame in traceback.extract_tb(link.__traceback__):
            yield CodePlace(library_path(frame.filename), frame.lineno or 0, frame.name, party_of(frame.filename))


def functions(error: BaseException) -> list[str]:
    """Returns the names of the functions that the exception and its causes passed through."""
    return [place.function for place in places(error)]


def user_frame(error: BaseException) -> CodePlace | None:
    """Returns the innermost frame of the user's own code in the chain of causes; None if there is none."""
    found = [place for place in places(error) if place.party == USER]
    innermost = found[-1] if found else None
    traced = [place for place in traced_places(error) if place.party == USER]
    if not traced:
        return innermost
    if traced[-1].function == "None" and innermost is not None:
        return dataclasses.replace(traced[-1], function=innermost.function)
    return traced[-1]


def library_frame(error: BaseException) -> CodePlace | None:
    """Returns the innermost frame in a library that configs name functions of; None if there is none."""
    ways = (traced_places(error), list(places(root_cause(error))), list(places(error)))
    for way in ways:
        found = [place for place in way if place.party in FRONT]
        if found:
            return ([place for place in found if place.party != "Gin"] or found)[-1]
    return None


def traced_places(error: BaseException) -> list[CodePlace]:
    """Returns the places that TensorFlow names in words, where it traced a function: it runs a rewritten copy."""
    for link in reversed(list(causes(error))):
        found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', full_text(link))
        if found:
            return [CodePlace(library_path(file), int(line), name, party_of(file)) for file, line, name in found]
    return []


def raised_by_user_code(error: BaseException) -> bool:
    """Returns whether the user's code is on the stack of what started an exception, or was traced by TensorFlow."""
    frames = traceback.extract_tb(root_cause(error).__traceback__)
    return any(is_users(frame.filename) for frame in frames) or any(p.party == USER for p in traced_places(error))


def raised_by_harness(error: BaseException) -> bool:
    """Returns whether an operation of the harness's own code failed: not of T5X, which it embeds, nor of the user.

    What it raises by a ``raise`` statement, of a value that it refuses, is another matter, and so is what the machine
    refuses.
    """
    cause = root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    by = [party for frame in frames if (party := party_of(frame.filename)) in (USER, HARNESS, *FRONT)]
    if not by or by[-1] != HARNESS or isinstance(cause, _OF_THE_MACHINE) or _is_of_tensorflow(cause):
        return False
    by_mistake = isinstance(cause, AssertionError) or not is_deliberate(cause)
    return by_mistake or party_of(frames[-1].filename) != HARNESS


def _is_of_tensorflow(error: BaseException) -> bool:
    """Returns whether an exception is one of TensorFlow's operations: of a file, most often."""
    return any(kind.__name__ == "OpError" for kind in type(error).__mro__)


def passed_through_t5x(error: BaseException) -> bool:
    """Returns whether T5X was at work when an exception was raised."""
    return any(place.party == "T5X" for place in places(error))
