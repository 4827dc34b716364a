"""Reads an exception by itself: its text, its causes, the places that it passed through, and whose code they are."""

import dataclasses
import dis
import functools
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.spec import Location
from t5x_harness.upstream.gin import hidden_exception
from t5x_harness.upstream.jax import is_traceback_carrier

_LONGEST = 300
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""The names of frames of expressions, which belong to the function around them."""

_SHORTEST = 20
"""A first sentence with fewer characters is only an exclamation, so the next one is also shown."""

_OF_TRANSFORMATION = r"Error in user-defined function passed to \S+ transformation with iterator: \S+: "
_IN_PYTHON = re.compile(
    rf"(?:\{{\{{[^}}]*\}}\}}\s*|{_OF_TRANSFORMATION})*((?:\w+\.)*\w+: .*?)\nTraceback \(most recent call last\):",
    re.DOTALL,
)
"""The form in which TensorFlow reports an exception of a Python function that it called, such as a generator."""

_OF_THE_GRAPH = re.compile(rf"\{{\{{[^}}]*\}}\}}\s*|\s*\[\[\{{\{{.*|\s*\[Op:\w+\].*|{_OF_TRANSFORMATION}", re.DOTALL)
"""The text that TensorFlow adds to an operation's error: functions and nodes of its graph, which no user wrote."""

_OF_GIN = re.compile(r"\n\s*(?:In (?:call to|file|bindings)|No values supplied by Gin)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(\[])|(?<=[.!?:])\s*\n\s*\n")
USER = "user"
HARNESS = "t5x-harness"
PYTHON = "Python"
_OURS = Path(__file__).parents[1]
FRONT = ("T5X", "SeqIO", "Gin", "Flax", "optax", "airio", "T5")
"""Libraries whose functions configs name; the code that they call says little about a config."""

_RAISE = dis.opmap["RAISE_VARARGS"]
_LOOKUPS = (LookupError, AttributeError, StopIteration)
"""The exceptions of a failed lookup; code that catches one often raises an error that explains more."""

_OF_THE_MACHINE = (OSError, ImportError, MemoryError)
"""Exceptions that a call may raise through no fault of its caller."""

_REFUSED_CALL = re.compile(
    r"takes (?:no|\d+|from \d+ to \d+) (?:keyword |positional )?arguments?\b|missing \d+ required|missing a required"
    r"|got (?:an unexpected keyword|multiple values for|some positional-only)|too many positional arguments"
)
_REFUSING_NAME = re.compile(r"([A-Za-z_][\w.]*)\(\) (?:takes|missing|got)\b")
_ABSTRACT = re.compile(r"Can't instantiate abstract class (\w+)")


def error_text(error: BaseException) -> str:
    """Returns an exception's type and first sentence, such as ``KeyError: 'validation'``.

    If TensorFlow hides a Python error in its own, this returns the type and text of the Python error. An assertion
    without a text shows what was asserted.
    """
    if inside := _IN_PYTHON.match(full_text(error)):
        return _first_sentence(inside[1])
    kind, text = type(error).__name__, one_line(error)
    if not text:
        frames = list(traceback.extract_tb(error.__traceback__)) if isinstance(error, AssertionError) else []
        return f"{kind} ({frames[-1].line})" if frames and frames[-1].line else kind
    return text if text.startswith(f"{kind}: ") else f"{kind}: {text}"


def full_text(error: BaseException) -> str:
    """Returns the whole text of an exception, even if a user's class raises while building the text."""
    try:
        return str(error)
    except Exception as second:
        return f"(its text is not available: {type(second).__name__})"


def one_line(error: BaseException) -> str:
    """Returns an exception's first sentence, without gin's trail, object addresses and line breaks."""
    text = full_text(error)
    text = _OF_THE_GRAPH.sub("", _OF_GIN.split(text, maxsplit=1)[0])
    if text.lstrip().startswith("in user code:"):  # TensorFlow's report on a traced function ends with the error
        text = text.strip().splitlines()[-1]
    return _first_sentence(text)


def _first_sentence(text: str) -> str:
    text = re.sub(r"<(?:bound method )?([\w.]+)(?: object)? at 0x[0-9a-f]+>", r"a \1", text)
    text = re.sub(r" at 0x[0-9a-f]+>", ">", text.strip())
    end = next((m.start() for m in _SENTENCE_END.finditer(text) if m.start() >= _SHORTEST), None)
    text = " ".join(text[:end].split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def is_of_python(error: BaseException) -> bool:
    """Tells whether TensorFlow reports an exception of a Python function that it called."""
    return _IN_PYTHON.match(full_text(error)) is not None


_NAMES = {
    "t5x": "T5X",
    "seqio": "SeqIO",
    "gin": "Gin",
    "flax": "Flax",
    "optax": "optax",
    "airio": "airio",
    "t5": "T5",
    "orbax": "orbax",
    "clu": "clu",
    "jax": "JAX",
    "jaxlib": "JAX",
    "tensorflow": "TensorFlow",
    "tensorflow_datasets": "TFDS",
}
"""Libraries by the package name that they are imported under; they may be anywhere, such as in a checkout."""


def party_of(file: str) -> str:
    """Returns the name of the party that a source file belongs to.

    Args:
      file: the file as a traceback names it.

    Returns:
      :data:`USER`, :data:`HARNESS`, :data:`PYTHON`, the name of a known library, or the package of another one.
    """
    if file.startswith("<") or "__autograph_generated_" in file:
        return PYTHON
    path = Path(file)
    for package, name in _NAMES.items():
        if any(path.is_relative_to(folder) for folder in _folders(package)):
            return name
    if path.is_relative_to(_OURS):
        return HARNESS
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0]
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return PYTHON if any(path.is_relative_to(folder) for folder in libraries) else USER


def is_users(file: str) -> bool:
    """Tells whether a source file is the user's, and not an installed library's, T5X's or the harness's."""
    return party_of(file) == USER


def shown_path(file: str) -> str:
    """Returns a path as the user would write it: relative if it is inside the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def library_path(file: str) -> str:
    """Returns a path that begins with the package for a known library's file, else as the user would write it."""
    for package in _NAMES:
        for folder in _folders(package):
            if Path(file).is_relative_to(folder):
                return str(package / Path(file).relative_to(folder))
    return shown_path(file)


def _folders(package: str) -> tuple[str, ...]:
    return tuple(getattr(sys.modules.get(package), "__path__", ()))


@dataclasses.dataclass(frozen=True)
class CodePlace:
    """A line of code that an exception passed through.

    Attributes:
      file: the file, as the user would write it.
      line: the line number, counted from 1.
      function: the function's name, or a name in angle brackets for a module or a lambda.
      party: the owner of the code; see :func:`party_of`.
    """

    file: str
    line: int
    function: str
    party: str = USER

    @property
    def location(self) -> Location:
        """The place in the form that findings use."""
        return Location(self.file, self.line)

    @property
    def is_named(self) -> bool:
        """Whether the code is a function with a name, rather than a module's own statements, a lambda or the like."""
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
    if repeats and not isinstance(first, KeyError):  # its text is only the key
        return False
    if not (later.__cause__ is first or isinstance(first, _LOOKUPS)) or not is_deliberate(later):
        return False
    return _raising_party(later) == _raising_party(first)


def _raising_party(error: BaseException) -> str:
    """Returns who raised an exception, skipping Python's own library, because it raises on behalf of its caller."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((p for frame in reversed(frames) if (p := party_of(frame.filename)) != PYTHON), PYTHON)


def is_deliberate(error: BaseException) -> bool:
    """Tells whether a ``raise`` statement raised an exception, rather than an operation that failed."""
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


def user_frame(error: BaseException) -> CodePlace | None:
    """Returns the innermost frame of the user's own code in the chain of causes, or None if there is none."""
    own = [place for place in places(error) if place.party == USER]
    innermost = own[-1] if own else None
    if len(own) > 1 and own[-1].function in _INLINE and own[-2].file == own[-1].file:
        innermost = dataclasses.replace(own[-1], function=own[-2].function)
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

    TensorFlow runs a rewritten copy of such a function, so the traceback itself does not contain them.
    """
    for link in reversed(list(causes(error))):
        found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', full_text(link))
        if found:
            return [CodePlace(library_path(file), int(line), name, party_of(file)) for file, line, name in found]
    return []


def unsortable_keys(error: BaseException) -> str | None:
    """Describes the keys of several types that could not be sorted, and the variable that has them; None if none."""
    cause = root_cause(error)
    if not (isinstance(cause, TypeError) and str(cause).startswith("'<' not supported between instances of ")):
        return None
    for frame, _ in reversed(list(traceback.walk_tb(cause.__traceback__))):
        for name, value in frame.f_locals.items():
            if isinstance(value, Mapping) and len({type(key) for key in value}) > 1:
                return f"the keys of {name} are of several types: {', '.join(map(repr, value))}"
    return None


def raised_by_user_code(error: BaseException) -> bool:
    """Tells whether the user's code was running, or being traced by TensorFlow, when the exception was raised."""
    frames = traceback.extract_tb(root_cause(error).__traceback__)
    return any(is_users(frame.filename) for frame in frames) or any(p.party == USER for p in traced_places(error))


def raised_by_harness(error: BaseException) -> bool:
    """Tells whether an operation in the harness's own code failed, rather than one in T5X's or the user's code.

    An exception does not count if the harness raised it on purpose to refuse a value, or if the machine refused
    something.
    """
    cause = root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    by = [party for frame in frames if (party := party_of(frame.filename)) in (USER, HARNESS, *FRONT)]
    of_tensorflow = any(kind.__name__ == "OpError" for kind in type(cause).__mro__)  # most often about a file
    if not by or by[-1] != HARNESS or isinstance(cause, _OF_THE_MACHINE) or of_tensorflow:
        return False
    by_mistake = isinstance(cause, AssertionError) or not is_deliberate(cause)
    return by_mistake or party_of(frames[-1].filename) != HARNESS


def passed_through_t5x(error: BaseException) -> bool:
    """Tells whether T5X was running when an exception was raised."""
    return any(place.party == "T5X" for place in places(error))


def users_callee(error: BaseException) -> CodePlace | None:
    """Finds the user's own function or class that refused a call, which Python reports only where it is called.

    Args:
      error: any exception.

    Returns:
      The place where it is defined, or None if the exception is about something else or the callee is not the user's.
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
    """Yields the objects with a qualified name in the user's modules."""
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
    """Returns the place where a function or class is defined, looking through any partials and decorators.

    Returns None for anything else, and for native code.
    """
    while isinstance(found, functools.partial):
        found = found.func
    found = inspect.unwrap(found) if callable(found) else found
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        return None
    try:
        file, (_, line) = inspect.getsourcefile(found), inspect.getsourcelines(found)
    except (OSError, TypeError):  # native code, or no file
        return None
    return CodePlace(shown_path(file), line, found.__name__, party_of(file)) if file else None
