"""The output of a job's replicas as plain files and in the form of Cloud Logging, and the latter's ``entries:list``."""

import base64
import bisect
import codecs
import dataclasses
import json
import math
import operator
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.vertex.jobs.replicas import JobPlace, Trial, replica_of
from t5x_harness.google.vertex.messages.filters import (
    COMPARE,
    And,
    Expression,
    Function,
    Not,
    Or,
    Restriction,
    parse_filter,
)
from t5x_harness.google.vertex.services import Services, aspect_key
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.errors import invalid_argument

SERVICE = "service"
"""The name under which the service itself writes into a job's log."""

_ASPECT = "log"
_SEVERITIES = "DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split()
# The field with the severity of a JSON line, which Cloud Logging removes.
_SEVERITY_FIELD = "severity"
# Longer lines are split, because Cloud Logging limits the size of an entry.
_LONGEST_LINE = 1 << 16
# The lengths of the two parts of an entry's insertId. The second part can count all lines that are written at once.
_ID_DIGITS, _NUMBER_DIGITS = 16, 4
# How many nanoseconds older a later line of a log may be: the trials of a tuning job write to its log concurrently.
_DISORDER = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class JobLog:
    """The log of one job.

    Attributes:
      project: the id of the job's project, which its log names instead of the number.
      state: stores the entries for all servers that share the state.
      folder: an existing folder, which gets a plain file for each unit, such as ``workerpool0-0.log``.
      trial: the trial that the job runs, if any; the entries then also belong to the tuning job.
    """

    name: str
    project: str
    state: StateStore
    folder: Path
    trial: Trial | None = None

    def service(self, text: str, severity: str = "INFO") -> None:
        """Writes a message of the service."""
        self.write(SERVICE, [text], severity)

    def write(self, unit: str, lines: Sequence[str], severity: str) -> None:
        """Writes lines of a unit or of the service, without line breaks.

        The severity is ``INFO`` for standard output and ``ERROR`` for standard error, as on the service.
        """
        if not lines:
            return
        # A message of the service may quote a file's name, which need not be Unicode.
        lines = [line.encode(errors="replace").decode() for line in lines]
        with open(self.folder / f"{unit}.log", "a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        said = _Written(
            id=uuid.uuid4().hex[:_ID_DIGITS],
            at=time.time_ns(),
            unit=unit,
            severity=severity,
            project=self.project,
            job_id=JobPlace.of(self.trial.job if self.trial else self.name).job_id,
            trial=self.trial.id if self.trial else "",
            lines=lines,
        )
        kept = json.dumps(vars(said), ensure_ascii=False).encode()
        for name in (self.name, *([self.trial.job] if self.trial else [])):
            self.state.append(aspect_key(name, _ASPECT), kept)


@dataclasses.dataclass(frozen=True)
class _Written:
    """Lines that were written at once, as the state stores them. Separate entries would be forty times as long.

    Attributes:
      id: the prefix of the ids of their entries.
      at: the time of the first line, in nanoseconds since 1970; each further line is one nanosecond later.
      severity: the severity of lines that do not name one themselves.
      project: the id of the job's project.
      job_id: the number of the job, or of the tuning job whose trial it runs.
      trial: the id of the trial; empty if there is none.
    """

    id: str
    at: int
    unit: str
    severity: str
    project: str
    job_id: str
    trial: str
    lines: Sequence[str]


class LoggedLine(NamedTuple):
    """A line of a log, at a time in nanoseconds since 1970, with its place among the lines that were written at once.

    Lines sort as their entries do.
    """

    at: int
    id: str
    number: int
    said: _Written

    def entry(self) -> dict[str, Any]:
        """Returns the line as a LogEntry object in JSON form."""
        said = self.said
        task = replica_of(said.unit)
        stamp = _stamp(self.at)
        payload: dict[str, Any] = {"severity": said.severity, "textPayload": said.lines[self.number]}
        if (value := _read_object(said.lines[self.number])) is not None:  # it may name its own severity
            given = str(value.pop(_SEVERITY_FIELD, said.severity)).upper()
            payload = {"severity": given if given in _SEVERITIES else "DEFAULT", "jsonPayload": value}
        labels = {"ml.googleapis.com/job_id/log_area": "root"}
        if said.trial:
            labels |= {"ml.googleapis.com/trial_id": said.trial, "ml.googleapis.com/trial_type": "hyperparameter"}
        if said.unit != task:  # one of several hosts
            labels["ml.googleapis.com/tpu_worker_id"] = said.unit.rpartition(".")[2]
        return {
            "insertId": self.id,
            **payload,
            "resource": {
                "type": "ml_job",
                "labels": {"project_id": said.project, "job_id": said.job_id, "task_name": task},
            },
            "labels": labels,
            "logName": f"projects/{said.project}/logs/{'ml.googleapis.com' if said.unit == SERVICE else task}",
            "timestamp": stamp,
            "receiveTimestamp": stamp,
        }


def read_lines(state: StateStore, name: str, since: int = 0) -> Iterator[LoggedLine]:
    """Yields the lines of a job's log, roughly in the order of their times.

    Lines before ``since``, in nanoseconds since 1970, may be left out, and then cost nothing.
    """
    key = aspect_key(name, _ASPECT)
    first = 0
    if since:

        def at(index: int) -> int:
            return next((_Written(**json.loads(data)).at for data in state.read(key, index, index + 1)), 0)

        first = bisect.bisect_left(range(state.append(key)), since - _DISORDER, key=at)
    for data in state.read(key, first):
        said = _Written(**json.loads(data))
        for number in range(len(said.lines)):
            yield LoggedLine(said.at + number, f"{said.id}{number:0{_NUMBER_DIGITS}x}", number, said)


class LineSplitter:
    """Splits the bytes of a stream into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that these bytes complete. Empty bytes mark the end of the stream; they return the rest."""
        *whole, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        if len(self._rest) > _LONGEST_LINE:
            last = self._rest[-4:]  # the last UTF-8 character may be incomplete
            end = len(self._rest) - len(last) + codecs.utf_8_decode(last, "replace", False)[1]
            whole, self._rest = [*whole, self._rest[:end]], self._rest[end:]
        return [line.decode(errors="replace").removesuffix("\r") for line in whole if line or data]


def _stamp(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"


def _read_object(line: str) -> dict[str, Any] | None:
    """Returns the object in a line, or None if it is not one that a ``google.protobuf.Struct`` can hold.

    It holds no other text than JSON, no number that is not finite as a double, no lone surrogate, and no deep nesting.
    """
    if not line.startswith("{"):
        return None
    try:
        return dict(read_json(line, parse_int=_double))
    except BadJson:
        return None


def _double(text: str) -> int:
    if math.isinf(float(text)):
        raise ValueError(f"{text} is not a finite double")
    return int(text)


_PAGE, _LARGEST_PAGE = 50, 1000
_LONGEST_FILTER = 20_000  # Cloud Logging's limit
_MOST_DIGITS = 10  # in a 32-bit number
_ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}


def list_entries(services: Services, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answers a request of Cloud Logging's ``entries:list``, as far as clients of Vertex AI use it.

    A request has ``resourceNames``, ``filter``, ``orderBy``, ``pageSize`` and ``pageToken``; an answer has ``entries``
    and, if there are more, ``nextPageToken``. A request that cannot be read raises ApiError (INVALID_ARGUMENT).
    """
    if not isinstance(request, Mapping):
        raise invalid_argument("Invalid JSON payload received. Root element must be a message.")
    order = str(request.get("orderBy") or "")
    if order not in _ORDERS:
        raise invalid_argument(f"orderBy {order!r} is none of timestamp asc and timestamp desc")
    text = str(request.get("filter") or "")
    if len(text) > _LONGEST_FILTER:
        raise invalid_argument(f"the filter has {len(text)} characters, and may have {_LONGEST_FILTER} at most")
    wanted = parse_filter(text) if text.strip() else And(())
    projects = [services.projects.number(name.split("/")[1]) for name in _names(request) if "/" in name]
    size = _page_size(request)
    descending = _ORDERS[order]
    last = _last_of(str(request.get("pageToken") or ""))
    found: list[tuple[LoggedLine, dict[str, Any]]] = []
    for line in _lines(services, projects, wanted, last, descending):
        if _holds(wanted, entry := line.entry()):
            found.append((line, entry))
            if len(found) > size:
                break
    answer: dict[str, Any] = {"entries": [entry for _, entry in found[:size]]}
    if len(found) > size:
        end = found[size - 1][0]
        answer["nextPageToken"] = base64.urlsafe_b64encode(f"{end.at} {end.id}".encode()).decode()
    return answer


def _names(request: Mapping[str, Any]) -> list[str]:
    given = request.get("resourceNames") or []
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise invalid_argument(f"resourceNames {given!r} is not a list of names: [projects/my-project]")
    return given


def _page_size(request: Mapping[str, Any]) -> int:
    given = request.get("pageSize") or _PAGE
    text = str(given)  # a number in JSON may be a string
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise invalid_argument(f"pageSize {given!r} is not a number of entries, from 0 up")
    return min(int(text), _LARGEST_PAGE) or _PAGE


def _lines(
    services: Services, projects: list[str], wanted: Expression, last: tuple[int, str] | None, descending: bool
) -> list[LoggedLine]:
    """Returns the lines after the last one of the previous page, in order, leaving out most lines that cannot match.

    The lines of a trial are also in the log of its tuning job.
    """
    since = _since(wanted) or 0
    if last is not None and not descending:
        since = max(since, last[0])
    job_ids = set(_job_ids(wanted))
    lines: dict[str, LoggedLine] = {}
    for key in (key for project in projects for key in services.state.keys(f"projects/{project}/")):
        name, _, aspect = key.partition("#")
        if aspect == _ASPECT and (not job_ids or name.rpartition("/")[2] in job_ids):
            lines |= {line.id: line for line in read_lines(services.state, name, since)}
    behind = (line for line in lines.values() if last is None or (line[:2] < last if descending else line[:2] > last))
    return sorted(behind, key=operator.itemgetter(0, 1), reverse=descending)


def _since(wanted: Expression) -> int | None:
    """Returns the earliest time of an entry that can match, or None if the filter does not bound it."""
    match wanted:
        case Restriction(("timestamp",), "=" | ">" | ">=", value):
            return _nanoseconds(value)
        case And(operands):
            return max((time for each in operands if (time := _since(each)) is not None), default=None)
        case Or(operands):
            times = [_since(each) for each in operands]
            return None if None in times else min((time for time in times if time is not None), default=None)
    return None


def _job_ids(wanted: Expression) -> Iterator[str]:
    """Yields the number of the only job that can match, if the filter names one."""
    match wanted:
        case Restriction(("resource", "labels", "job_id"), "=", value):
            yield value
        case And(operands):
            for each in operands:
                yield from _job_ids(each)


def _holds(wanted: Expression, entry: Mapping[str, Any]) -> bool:
    match wanted:
        case And(operands):
            return all(_holds(each, entry) for each in operands)
        case Or(operands):
            return any(_holds(each, entry) for each in operands)
        case Not(operand):
            return not _holds(operand, entry)
        case Function(name, _):
            raise invalid_argument(f"Unknown function {name}")
        case Restriction(path, sign, value):
            found: Any = entry
            for part in path:  # labels have dots in their names, so a filter quotes the names
                found = found.get(part) if isinstance(found, Mapping) else None
            return _compares(found, sign, value, path)


def _compares(found: Any, sign: str, value: str, path: tuple[str, ...]) -> bool:
    if sign == "!=":
        return not _compares(found, "=", value, path)
    if found is None:
        return False
    if sign == ":":
        return value == "*" or value.casefold() in str(found).casefold()
    one, other = _comparable(path, str(found)), _comparable(path, value)
    return COMPARE[sign](one, other)


def _comparable(path: tuple[str, ...], text: str) -> Any:
    if path in (("timestamp",), ("receiveTimestamp",)):
        return _nanoseconds(text)
    if path == ("severity",):
        return _SEVERITIES.index(text.upper()) if text.upper() in _SEVERITIES else -1
    return text


def _nanoseconds(text: str) -> int:
    """Parses an RFC 3339 time, which Python's own parser would truncate to microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    zone = fraction[len(digits) :] or "+00:00"
    try:
        seconds = int(datetime.fromisoformat(whole + ("" if "+" in whole[10:] else zone)).timestamp())
    except ValueError:
        raise invalid_argument(f"{text!r} is not a timestamp") from None
    return seconds * 1_000_000_000 + int(digits.ljust(9, "0")[:9] or 0)


def _last_of(token: str) -> tuple[int, str] | None:
    """Returns the time and the id of the last entry on the page that came with a token."""
    if not token:
        return None
    try:
        at, insert_id = base64.urlsafe_b64decode(token.encode()).decode().split(" ")
        return int(at), insert_id
    except ValueError:
        raise invalid_argument("Invalid pageToken") from None
