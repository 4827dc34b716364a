"""Reads a log line by line, and keeps what may explain its end: little, however long the log is."""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from t5x_harness.symptoms.log_lines import LogLine
from t5x_harness.symptoms.resolver import Conflict, ConflictReader
from t5x_harness.symptoms.table import SymptomText, progress, progress_parts, symptom_codes
from t5x_harness.symptoms.tracebacks import LoggedException, TracebackReader

_GOES_ON = 5
"""After as many lines of progress, what a host logged before did not end it. The first ones may have been under way."""

_PROCESS = "Process ID: "
"""T5X logs the number of its process at its start."""

_GOES_ON_ASKED = 20
"""The same for a host that was asked to end: it may take steps for the time that it is given, and save."""

_MOST_HOSTS = 4096
_MOST_NAMED = 64
_MOST_DIGITS = 9
MOST_CHARACTERS = 240
"""The most characters of a line or of a value that are shown."""

MOST_KEPT = 10 * MOST_CHARACTERS
"""The most characters of a line that are kept, so that a secret is masked as a whole before it is cut."""

_MOST_REPLACED = 20
_MOST_BETWEEN = 3
"""The most lines between a text and the hosts that it names."""

_TAIL = 3
_WEIGHTS = {"cause": 0, "notice": 1, "death": 2, "effect": 3, "echo": 4}


@dataclasses.dataclass
class FoundText:
    """A text of the table that was found in a line.

    Attributes:
      text: the text.
      line: the line; of a long one, the part that begins with the text.
      values: the groups of its pattern.
      hosts: the numbers of the hosts that it names.
      last: what the host whose line it is logged last as it went on.
      importer: the package whose file raised the exception that the line may be of; empty if unknown.
      steps: how many lines of progress that host logged since.
    """

    text: SymptomText
    line: LogLine
    values: dict[str, str]
    hosts: list[int]
    last: str
    importer: str = ""
    steps: int = 0

    @property
    def is_survived(self) -> bool:
        """Whether its host went on for so long that it did not end it."""
        return self.steps >= (_GOES_ON_ASKED if self.text.role == "notice" else _GOES_ON)


@dataclasses.dataclass
class _Writer:
    """What was read of one host.

    Attributes:
      last: the last line of progress.
      time: its time.
      ids: the numbers of the processes that it says it is; more than one if it is the log of several hosts.
      exceptions: its exceptions.
      conflicts: what pip and uv printed.
      naming: the text whose hosts the next lines name, if there is one.
      between: how many lines were read since, without a host.
    """

    last: str = ""
    time: str = ""
    ids: set[int] = dataclasses.field(default_factory=set)
    exceptions: TracebackReader = dataclasses.field(default_factory=TracebackReader)
    conflicts: ConflictReader = dataclasses.field(default_factory=ConflictReader)
    naming: FoundText | None = None
    between: int = 0


class LogReader:
    """Reads the lines of a log; of each text it keeps the first occurrence for each host that did not go on after it.

    Attributes:
      lines: how many lines were read.
      tail: the last lines that are not blank.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.tail: list[str] = []
        self._replaced: list[FoundText] = []
        self._texts = [text for code in symptom_codes().values() for text in code.texts]
        self._parts = tuple(dict.fromkeys(text.has for text in self._texts))
        self._progress, self._progress_parts = progress(), progress_parts()
        self._writers: dict[str, _Writer] = {}
        self._found: dict[tuple[str, str, str], FoundText] = {}

    @property
    def found(self) -> list[FoundText]:
        """The texts that were found, in the order of their lines, after which their hosts did not go on."""
        return [found for found in self._found.values() if not found.is_survived]

    @property
    def survived(self) -> list[FoundText]:
        """The texts that were found after which their hosts went on, in the order of their lines."""
        survived = [found for found in self._found.values() if found.is_survived]
        return sorted([*self._replaced, *survived], key=lambda found: found.line.number)

    def exceptions(self) -> Iterator[LoggedException]:
        """Yields the last exception of each host, unless it went on after it."""
        for writer in self._writers.values():
            if (last := writer.exceptions.last) and last.steps < _GOES_ON:
                yield last

    def conflicts(self) -> Iterator[Conflict]:
        """Yields the last conflict of a resolver of each host."""
        for writer in self._writers.values():
            if conflict := writer.conflicts.conflict():
                yield conflict

    def last_steps(self) -> Iterator[tuple[str, str]]:
        """Yields the name of each host that logged progress, and its last line of it."""
        yield from ((name, writer.last) for name, writer in self._writers.items() if writer.last)

    def last_of(self, writer: str) -> str:
        """Returns the last line of progress of a host, by its name; empty if there is none."""
        return self._writers[writer].last if writer in self._writers else ""

    def number_of(self, line: LogLine) -> int | None:
        """Returns the number of the host whose line it is, if the line says so or T5X logged it; None otherwise."""
        ids = self._writers[line.writer].ids if line.writer in self._writers else set()
        return next(iter(ids)) if line.host is None and len(ids) == 1 else line.host

    def text_of(self, line: str) -> tuple[SymptomText, dict[str, str], int] | None:
        """Returns the text that says the most of those in a line, its groups and where it begins; None if none is."""
        best = None
        for text in self._texts:
            if text.has in line and (best is None or _WEIGHTS[text.role] < _WEIGHTS[best[0].role]):
                match = text.pattern.search(line)
                best = (text, {k: v or "" for k, v in match.groupdict().items()}, match.start()) if match else best
        return best

    def read(self, line: LogLine) -> None:
        """Reads the next line."""
        self.lines, text = line.number, line.text
        if not text or text.isspace():
            if line.writer in self._writers:
                self._writers[line.writer].conflicts.read(line)
            return
        self.tail = [*self.tail[1 - _TAIL :], text[:MOST_KEPT]]
        writer = self._writers.get(line.writer)
        if writer is None:
            if len(self._writers) == _MOST_HOSTS:
                return
            writer = self._writers[line.writer] = _Writer()
        if writer.naming:
            self._name_hosts(writer, writer.naming, text)
        writer.exceptions.read(line, writer.last)
        writer.conflicts.read(line)
        if _has(text, self._progress_parts) and (step := self._progress.search(text)):
            self._go_on(line, writer, step)
        elif _PROCESS in text and (process := text.rpartition(_PROCESS)[2].strip()).isdecimal():
            if len(writer.ids) < 2 and len(process) <= _MOST_DIGITS:
                writer.ids.add(int(process))
        elif _has(text, self._parts) and not (writer.exceptions.in_frames and text[0].isspace()):
            self._find(line, writer)

    def _name_hosts(self, writer: _Writer, found: FoundText, text: str) -> None:
        match = found.text.next.fullmatch(text.strip()) if found.text.next else None
        if match and len(found.hosts) < _MOST_NAMED and len(match[1]) <= _MOST_DIGITS:
            found.hosts.append(int(match[1]))
        writer.between += not match
        if not match and (found.hosts or writer.between > _MOST_BETWEEN):
            writer.naming = None

    def _go_on(self, line: LogLine, writer: _Writer, step: re.Match[str]) -> None:
        steps = _GOES_ON_ASKED if step["end"] else 1
        # Entries of Cloud Logging may be ordered by time backward.
        if not (line.time and line.time < writer.time):
            writer.last, writer.time = (step["end"] or step[0])[:MOST_KEPT], line.time
        for found in self._found.values():
            if found.line.writer == line.writer and not (line.time and line.time < found.line.time):
                found.steps += steps
        last = writer.exceptions.last
        if last and not (line.time and line.time < last.line.time):
            last.steps += steps

    def _find(self, line: LogLine, writer: _Writer) -> None:
        if not (best := self.text_of(line.text)):
            return
        text, values, start = best
        host = values.pop("host", "")
        key = (text.code, text.role, f"{line.writer} {host}{values.get('replica', '')}")
        earlier = self._found.get(key)
        if earlier and not earlier.is_survived:
            return
        if earlier and len(self._replaced) < _MOST_REPLACED:
            self._replaced.append(earlier)
        kept = line if len(line.text) <= MOST_CHARACTERS else _cut(line, start)
        shown = {name: value[:MOST_CHARACTERS] for name, value in values.items()}
        hosts = [int(host)] if host and len(host) <= _MOST_DIGITS else []
        found = FoundText(text, kept, shown, hosts, writer.last, writer.exceptions.package)
        self._found.pop(key, None)
        self._found[key] = found
        if text.next and not host:
            writer.naming, writer.between = found, 0


def _cut(line: LogLine, start: int) -> LogLine:
    return dataclasses.replace(line, text=line.text[start : start + MOST_KEPT])


def _has(text: str, parts: Iterable[str]) -> bool:
    """Returns whether a text has one of the parts. Most of the time of a long log is spent here."""
    for part in parts:  # noqa: SIM110 - a generator in any() takes twice as long
        if part in text:
            return True
    return False
