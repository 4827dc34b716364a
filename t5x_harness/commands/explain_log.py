"""``t5x-harness explain --log`` and ``doctor --explain``: what a job died of, or pip failed with, by a log's texts."""

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from t5x_harness.commands.arguments import FINE, FOUND, UsageError
from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import wrap
from t5x_harness.resolve.known_errors import reword
from t5x_harness.symptoms.log_lines import text_lines
from t5x_harness.symptoms.recognize import UNKNOWN, Recognition, Symptom, read_log

_STDIN = "-"
_GZIP = b"\x1f\x8b"
_WIDEST = 120
_MOST_OTHERS = 8


def explain_log(log: str, command: str = "explain --log") -> int:
    """Prints what a log says that its job died of, or that its installation failed with.

    Args:
      log: the path of a file, or ``-`` for standard input.
      command: the command and its option that named the log, for messages.

    Returns:
      The exit status: 0 if a text is known, and 1 if none is.

    Raises:
      UsageError: the log cannot be read.
    """
    with _opened(log, command) as stream:
        read = read_log(text_lines(stream), reword)
    name = "stdin" if log == _STDIN else log
    is_known = any(symptom.code != UNKNOWN or symptom.fix for symptom in read.symptoms)
    for line in _report(name, read) if is_known else _nothing_known(name, read):
        print(printable(line))
    return FINE if is_known else FOUND


@contextlib.contextmanager
def _opened(log: str, command: str) -> Iterator[IO[bytes]]:
    if log == _STDIN:
        yield sys.stdin.buffer
        return
    path, option = Path(log), command.split()[-1]
    if path.is_dir():
        raise UsageError(f"{option}: {log} is a folder; name a log in it")
    try:
        with path.open("rb") as stream:
            if stream.peek(2).startswith(_GZIP):
                raise UsageError(
                    f"{option}: {log} is compressed; use: zcat {shlex.quote(log)} | t5x-harness {command} -"
                )
            yield stream
    except FileNotFoundError:
        raise UsageError(f"{option}: there is no file {log}") from None
    except OSError as error:
        raise UsageError(f"{option}: {log} cannot be read: {error.strerror}") from None


def _report(name: str, read: Recognition) -> Iterator[str]:
    cause, *others = read.symptoms
    yield f"{name}:{cause.line}: {cause.code}: {cause.message}"
    yield from _part("in the log", cause.quoted)
    yield from _part("did last", cause.last)
    yield from _part("cause", cause.cause)
    yield from _part("fix", cause.fix)
    if cause.command:
        yield f"  {'command:':12}{cause.command}"  # not wrapped, so that it can be copied
    if others:
        yield "The log also has these, which may follow from it:"
        yield from _in_lines(name, others)
    yield from _survived(name, read.survived)
    codes = dict.fromkeys(symptom.code for symptom in read.symptoms)
    yield f"`t5x-harness explain {' '.join(codes)}` explains the code{'s' if len(codes) > 1 else ''}."


def _nothing_known(name: str, read: Recognition) -> Iterator[str]:
    if not read.tail:
        yield f"{name}: the log is empty" if not read.lines else f"{name}: the log has {read.lines} blank lines"
        return
    lines = "1 line was" if read.lines == 1 else f"all {read.lines} lines were"
    yield f"{name}: no known text was found; {lines} read"
    if read.symptoms:
        yield "The last exception of each host:"
        yield from _in_lines(name, read.symptoms)
    yield from _survived(name, read.survived)
    if read.progress:
        yield "What was done last:"
        yield from (f"  {step}" for step in read.progress[:_MOST_OTHERS])
        yield from _more(len(read.progress))
    yield "The end of the log:"
    yield from (f"  {line}" for line in read.tail)


def _survived(name: str, symptoms: Sequence[Symptom]) -> Iterator[str]:
    if symptoms:
        yield "The job went on after these:"
        yield from _in_lines(name, symptoms)


def _in_lines(name: str, symptoms: Sequence[Symptom]) -> Iterator[str]:
    for symptom in symptoms[:_MOST_OTHERS]:
        yield f"  {name}:{symptom.line}: {symptom.code}: {symptom.message}"
    yield from _more(len(symptoms))


def _more(number: int) -> Iterator[str]:
    if number > _MOST_OTHERS:
        yield f"  and {number - _MOST_OTHERS} more"


def _part(label: str, text: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return wrap(text, width, f"  {label + ':':12}", " " * 14) if text else []
