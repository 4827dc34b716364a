"""Recognizes in the log of a job what it died of."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from t5x_harness.symptoms.log_lines import LogLine, log_lines
from t5x_harness.symptoms.reading import MOST_CHARACTERS, FoundText, LogReader
from t5x_harness.symptoms.resolver import Conflict
from t5x_harness.symptoms.table import Role, symptom_codes
from t5x_harness.symptoms.tracebacks import LoggedException
from t5x_harness.system.secrets import mask_text

UNKNOWN = "RUN01"
"""The code of an exception that no table knows."""


class KnownError(Protocol):
    """What is known of an exception's text."""

    @property
    def code(self) -> str:
        """The code of the mistake."""

    @property
    def message(self) -> str:
        """What is wrong."""

    @property
    def fix(self) -> str:
        """The smallest fix."""


_OF_T5X = re.compile(r"(?:\bt5x|-packages)[/\\]t5x[/\\](?:contrib[/\\]\w+[/\\])?\w+\.py:")
"""The place of a line in T5X's package."""


@dataclasses.dataclass(frozen=True)
class Symptom:
    """What a line of a log says about the end of its job.

    Attributes:
      code: the code of what happened, which ``t5x-harness explain`` explains.
      message: what failed, as far as the log says.
      cause: the likely cause; empty if the exception says it.
      fix: the smallest fix; empty if none is known.
      command: the command that makes it; empty if none is known.
      host: the number of the host that failed; None if the log does not say.
      line: the number of the line, from 1.
      quoted: the text of the library in that line, without secrets.
      last: what that host logged before as it went on; empty if nothing was read.
      role: whether it is the cause or follows from one.
      time: month, day and time of the line, if it has them.
      writer: the name of the host whose line it is; empty if the log does not say.
    """

    code: str
    message: str
    cause: str
    fix: str
    host: int | None
    line: int
    quoted: str
    last: str = ""
    command: str = ""
    role: Role = "cause"
    time: str = ""
    writer: str = ""


@dataclasses.dataclass(frozen=True)
class Recognition:
    """What a log says about the end of its job.

    Attributes:
      symptoms: what it died of: the cause first, then what followed from it.
      survived: what happened earlier without ending it, as after a restart.
      lines: how many lines were read.
      tail: the last lines that say anything, without secrets.
      progress: what each host logged last as it went on.
    """

    symptoms: tuple[Symptom, ...]
    survived: tuple[Symptom, ...]
    lines: int
    tail: tuple[str, ...]
    progress: tuple[str, ...]


def recognize(
    lines: Iterable[str], known: Callable[[Sequence[str]], KnownError | None] = lambda texts: None
) -> Sequence[Symptom]:
    """Finds out what a job died of, by the texts of its libraries in its log.

    Args:
      lines: the lines of the log of one host, or of several with the host's name before each line. They are read once.
      known: returns what is known of an exception, by its text and those of its causes; by default, nothing is.

    Returns:
      What it died of, with the cause before what followed from it, and the first death before later ones; empty if
      no text is known. A code occurs once for a host.
    """
    return read_log(lines, known).symptoms


def read_log(
    lines: Iterable[str], known: Callable[[Sequence[str]], KnownError | None] = lambda texts: None
) -> Recognition:
    """Does what :func:`recognize` does, and also returns how much it read, and what did not end the job."""
    reader = LogReader()
    for line in log_lines(lines):
        reader.read(line)
    conflicts = [_of_conflict(conflict) for conflict in reader.conflicts()]
    ended = [*(_symptom(found, reader) for found in reader.found), *conflicts, *_raised(reader, known)]
    return Recognition(
        _without_repetitions(_causes_first(_without_echoes(ended))),
        tuple(_symptom(found, reader) for found in reader.survived),
        reader.lines,
        tuple(_quoted(line) for line in reader.tail),
        tuple(_did(writer, step) for writer, step in reader.last_steps()),
    )


def _symptom(found: FoundText, reader: LogReader) -> Symptom:
    text, line = found.text, found.line
    about = found.hosts[0] if found.hosts else text.about
    host = reader.number_of(line) if about is None and not text.who else about
    replica = found.values.get("replica", "")
    who = _names(found.hosts) or replica or text.who or _writer(line, reader)
    code = symptom_codes()[text.code]
    return Symptom(
        code=text.code,
        message=mask_text(text.message.format(who=who, importer=found.importer or "a package", **found.values)),
        cause=code.cause,
        fix=code.fix,
        command=code.command,
        host=host,
        line=line.number,
        quoted=_quoted(line.text),
        last=_last(host, replica, found, reader),
        role=text.role,
        time=line.time,
        writer=line.writer,
    )


def _of_conflict(conflict: Conflict) -> Symptom:
    code, line = symptom_codes()[conflict.code], conflict.line
    return Symptom(
        code=conflict.code,
        message=mask_text(conflict.message),
        cause=code.cause,
        fix=code.fix,
        command=code.command,
        host=line.host,
        line=line.number,
        quoted=_quoted(line.text),
        time=line.time,
        writer=line.writer,
    )


def _writer(line: LogLine, reader: LogReader) -> str:
    """Returns what a message calls the host whose line it is."""
    number = reader.number_of(line)
    return line.writer or ("a host" if number is None else f"host {number}")


def _names(hosts: Sequence[int]) -> str:
    numbers = [str(host) for host in hosts]
    return f"host {numbers[0]}" if len(numbers) == 1 else f"hosts {', '.join(numbers)}" if numbers else ""


def _last(host: int | None, replica: str, found: FoundText, reader: LogReader) -> str:
    """Says what the host that failed did last, or if its own log is not there, the host whose log it is."""
    writer = found.line.writer
    failed = replica if host is None else f"host {host}"
    if failed and failed != writer and (last := reader.last_of(failed)):
        return _did(failed, last)
    return _did(writer, found.last)


def _did(writer: str, step: str) -> str:
    return f"{writer or 'this log'}: {_quoted(step)}" if step else ""


def _quoted(text: str) -> str:
    """Returns the beginning of a line of a log, without secrets."""
    masked = mask_text(text.strip())
    if len(masked) <= MOST_CHARACTERS:
        return masked
    return f"{masked[:MOST_CHARACTERS].rpartition(' ')[0] or masked[:MOST_CHARACTERS]} …"


def _raised(reader: LogReader, known: Callable[[Sequence[str]], KnownError | None]) -> list[Symptom]:
    """Returns a symptom for the last exception of each host, unless the table has its text."""
    return [
        _of_exception(error, known(error.texts[::-1]), reader)
        for error in reader.exceptions()
        if not any(reader.text_of(text.partition("\n")[0]) for text in error.texts)
    ]


def _of_exception(error: LoggedException, known: KnownError | None, reader: LogReader) -> Symptom:
    line = error.line
    at = f", raised at {error.place}" if error.place else ""
    return Symptom(
        code=known.code if known else UNKNOWN,
        message=mask_text(known.message if known else f"{_writer(line, reader)} stopped with {_quoted(line.text)}{at}"),
        cause="",
        fix=known.fix if known else _fix_of(error),
        host=reader.number_of(line),
        line=line.number,
        quoted=_quoted(line.text),
        last=_did(line.writer, error.last),
        role="cause" if known else "raised",
        time=line.time,
        writer=line.writer,
    )


def _fix_of(error: LoggedException) -> str:
    """Returns the fix for an exception that is a mistake of T5X itself: a name that its own module does not define."""
    if not error.texts[-1].startswith("NameError: ") or not _OF_T5X.search(error.place):
        return ""
    return "the mistake is in T5X's own code: use another commit of T5X, such as cc342d4, or the embedded T5X"


def _without_echoes(symptoms: Sequence[Symptom]) -> Sequence[Symptom]:
    """Leaves out the effects that do not say which host is gone if anything else that is known says more."""
    more = [symptom for symptom in symptoms if symptom.role != "echo"]
    return more if any(symptom.code != UNKNOWN for symptom in more) else symptoms


def _causes_first(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Orders symptoms: causes, processes that ended, what other hosts saw, and processes that ended only after that."""
    timed = all(symptom.time for symptom in symptoms)

    def position(symptom: Symptom) -> tuple[str, int]:
        return symptom.time if timed else "", symptom.line

    seen = [symptom for symptom in symptoms if symptom.role in ("effect", "echo")]
    first = min((position(symptom) for symptom in seen), default=None)
    missed = {symptom.host for symptom in seen if symptom.role == "effect"} - {None}

    def rank(symptom: Symptom) -> int:
        own = first is None or position(symptom) < first or symptom.host in missed
        ended = {"notice": 0, "death": 1, "raised": 1}
        if symptom.role in ended:
            return ended[symptom.role] if own else 4
        return {"cause": 0, "effect": 2, "echo": 3}[symptom.role]

    return sorted(symptoms, key=lambda symptom: (rank(symptom), position(symptom)))


def _without_repetitions(symptoms: Iterable[Symptom]) -> tuple[Symptom, ...]:
    """Leaves out a symptom if an earlier one has its code and its host, or if it names no host."""
    kept: list[Symptom] = []
    for symptom in symptoms:
        hosts = {other.host for other in kept if other.code == symptom.code}
        if not hosts or (symptom.role != "echo" and symptom.host not in {None, *hosts}):
            kept.append(symptom)
    return tuple(kept)
