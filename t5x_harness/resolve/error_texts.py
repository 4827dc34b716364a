"""The text of an exception, short enough for one line of a report."""

from __future__ import annotations

import linecache
import re

_LONGEST = 300
_SHORTEST = 20
"""A first sentence with fewer characters is only an exclamation, so the next one is shown, too."""

_OF_TRANSFORMATION = r"Error in user-defined function passed to \S+ transformation with iterator: \S+: "
_IN_PYTHON = re.compile(
    rf"(?:\{{\{{[^}}]*\}}\}}\s*|{_OF_TRANSFORMATION})*((?:\w+\.)*\w+: .*?)\nTraceback \(most recent call last\):",
    re.DOTALL,
)
"""How TensorFlow reports an exception of a Python function that it called, such as a generator."""

_OF_THE_GRAPH = re.compile(
    rf"\{{\{{[^}}]*\}}\}}\s*|\s*\[\[\{{\{{.*|\s*\[Op:\w+\].*|{_OF_TRANSFORMATION}",
    re.DOTALL,
)
"""What TensorFlow adds to an error of an operation: functions and nodes of its graph, which no user wrote."""

_OF_GIN = re.compile(r"\n\s*(?:In (?:call to|file|bindings)|No values supplied by Gin)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(\[])|(?<=[.!?:])\s*\n\s*\n")


def error_text(error: BaseException) -> str:
    """Returns an exception's type and first sentence, such as ``KeyError: 'validation'``.

    If TensorFlow hides a Python error in its own, the type and text are those of the Python error. An assertion without
    a text shows what was asserted.
    """
    if inside := _IN_PYTHON.match(full_text(error)):
        return _first_sentence(inside[1])
    kind, text = type(error).__name__, one_line(error)
    if not text:
        asserted = _source_line(error) if isinstance(error, AssertionError) else ""
        return f"{kind} ({asserted})" if asserted else kind
    return text if text.startswith(f"{kind}: ") else f"{kind}: {text}"


def full_text(error: BaseException) -> str:
    """Returns the whole text of an exception, even if a user's class raises when it makes the text."""
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


def _source_line(error: BaseException) -> str:
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return linecache.getline(frames.tb_frame.f_code.co_filename, frames.tb_lineno).strip() if frames else ""


def is_of_python(error: BaseException) -> bool:
    """Tells whether TensorFlow reports an exception of a Python function that it called."""
    return _IN_PYTHON.match(full_text(error)) is not None
