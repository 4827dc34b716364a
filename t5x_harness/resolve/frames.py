"""What an exception tells by itself: its causes, its text, and the line of the user's own code that it came from."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.spec import Location

_LONGEST = 600
_OURS = Path(__file__).parents[1]
_MISTAKES = (AssertionError, AttributeError, LookupError, NameError, TypeError)

_IN_PYTHON = re.compile(r"(?:\{\{[^}]*\}\}\s*)*((?:\w+\.)*\w+: .*?)\nTraceback \(most recent call last\):", re.DOTALL)
"""How TensorFlow tells of an exception of a Python function that it called: a generator's, for one."""

_OF_THE_GRAPH = re.compile(
    r"\{\{[^}]*\}\}\s*|\s*\[\[\{\{.*|\s*\[Op:\w+\].*"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: ",
    re.DOTALL,
)
"""What TensorFlow adds to an error of an operation: functions and nodes of its graph, which nobody has written."""


@dataclasses.dataclass(frozen=True)
class UserFrame:
    """The innermost place in the user's own code."""

    file: str
    line: int
    function: str

    @property
    def location(self) -> Location:
        """The place as findings name it."""
        return Location(self.file, self.line)

    @property
    def is_named(self) -> bool:
        """Whether the code is a function with a name; a module's own statements, a lambda and the like are not."""
        return not self.function.startswith("<")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the exception and its causes, outermost first, those too that gin hides behind its own."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = _behind_gin(link) or link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _behind_gin(error: BaseException) -> BaseException | None:
    """Returns the exception that gin raised again with its own account of where; that one has lost its causes."""
    text = vars(type(error)).get("__str__")
    if not (inspect.isfunction(text) and text.__module__ == "gin.utils"):
        return None
    hidden = inspect.getclosurevars(text).nonlocals.get("exception")
    return hidden if isinstance(hidden, BaseException) else None


def root_cause(error: BaseException) -> BaseException:
    """Returns the exception that started it: the end of the chain of causes."""
    *_, last = causes(error)
    return last


def functions(error: BaseException) -> list[str]:
    """Returns the names of the functions that the exception and its causes passed through."""
    return [frame.name for link in causes(error) for frame in traceback.extract_tb(link.__traceback__)]


def user_frame(error: BaseException) -> UserFrame | None:
    """Returns the innermost frame of the user's own code in the chain of causes; None if there is none."""
    found = None
    for link in causes(error):
        for frame in traceback.extract_tb(link.__traceback__):
            if is_users(frame.filename):
                found = UserFrame(shown_path(frame.filename), frame.lineno or 0, frame.name)
    return _traced_frame(error, found) or found


def _traced_frame(error: BaseException, caller: UserFrame | None) -> UserFrame | None:
    """Returns the user's line where TensorFlow traced their function.

    It rewrites the code and tells the line in words.
    """
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', str(root_cause(error)))
    users = [(file, int(line), name) for file, line, name in places if is_users(file)]
    if not users:
        return None
    file, line, name = users[-1]
    function = name if name != "None" else caller.function if caller else "a function"
    return UserFrame(shown_path(file), line, function)


def one_line(error: BaseException) -> str:
    """Returns an exception's own text: without gin's trail, object addresses and line breaks."""
    text = re.split(r"\n\s*In (?:call to|file|bindings)", str(error), maxsplit=1)[0]
    text = _OF_THE_GRAPH.sub("", text)
    if text.startswith("in user code:"):  # TensorFlow's account of a traced function ends with the error itself
        text = text.strip().splitlines()[-1]
    return _shortened(text)


def _shortened(text: str) -> str:
    text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"a \1", text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def error_text(error: BaseException) -> str:
    """Returns an exception's type and text, ``KeyError: 'validation'``, also where TensorFlow hides it in its own."""
    if inside := _IN_PYTHON.match(str(error)):
        return _shortened(inside[1])
    kind, text = type(error).__name__, one_line(error)
    return text if text.startswith(f"{kind}: ") else f"{kind}: {text}"


def is_users(file: str) -> bool:
    """Returns whether a source file belongs to the user: no installed library, no T5X, no part of the harness."""
    if file.startswith("<") or "__autograph_generated_" in file:
        return False
    path = Path(file)
    if path.is_relative_to(_OURS):
        return False
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in ("t5x", "seqio", "gin", "jax", "flax"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__path__", None):
            libraries.update(module.__path__)
    return not any(path.is_relative_to(folder) for folder in libraries)


def raised_by_user_code(error: BaseException) -> bool:
    """Tells whether the user's code is on the stack of what started an exception, or was traced by TensorFlow there."""
    frames = traceback.extract_tb(root_cause(error).__traceback__)
    return any(is_users(frame.filename) for frame in frames) or _traced_frame(error, None) is not None


def raised_by_harness(error: BaseException) -> bool:
    """Returns whether a mistake in the harness's own code started an exception: not in T5X, which it embeds.

    What it raises by intention, of a value that it refuses, is another matter.
    """
    cause = root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    if not frames or not isinstance(cause, _MISTAKES):
        return False
    return Path(frames[-1].filename).is_relative_to(_OURS) and not _is_t5x(frames[-1].filename)


def passed_through_t5x(error: BaseException) -> bool:
    """Returns whether T5X was at work when an exception was raised."""
    return any(_is_t5x(frame.filename) for link in causes(error) for frame in traceback.extract_tb(link.__traceback__))


def _is_t5x(file: str) -> bool:
    module = sys.modules.get("t5x")
    return any(Path(file).is_relative_to(folder) for folder in getattr(module, "__path__", ()))


def shown_path(file: str) -> str:
    """Returns a path as the user would write it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
