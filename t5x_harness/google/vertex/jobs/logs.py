"""The output of a job's replicas, in the form of Cloud Logging and as plain files."""

from __future__ import annotations

import bisect
import codecs
import dataclasses
import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.vertex.jobs.replicas import JobPlace, Trial, replica_of
from t5x_harness.google.vertex.services import Services, aspect_key
from t5x_harness.google.vertex.state import StateStore

SERVICE = "service"
"""The name under which the service itself writes into a job's log."""

_ASPECT = "log"
_SEVERITIES = frozenset("DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split())
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

    @classmethod
    def of(cls, services: Services, name: str, folder: Path, trial: Trial | None = None) -> Self:
        return cls(name, services.projects.identifier(JobPlace.of(name).project), services.state, folder, trial)

    def service(self, text: str, severity: str = "INFO") -> None:
        """Writes a message of the service."""
        self.write(SERVICE, [text], severity)

    def write(self, unit: str, lines: Sequence[str], severity: str) -> None:
        """Writes lines of a unit or of the service.

        Args:
          lines: the lines, without line breaks.
          severity: ``INFO`` for standard output, ``ERROR`` for standard error, as on the service.
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
    """A line of a log. Lines sort as their entries do.

    Attributes:
      at: its time, in nanoseconds since 1970.
      number: its place among the lines that were written at once.
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

    Args:
      since: a time in nanoseconds since 1970; earlier lines may be left out, and then cost nothing.
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


def jobs_with_logs(state: StateStore, project: str) -> list[str]:
    """Returns the names of jobs that have a log."""
    end = aspect_key("", _ASPECT)
    return [key.removesuffix(end) for key in state.keys(f"projects/{project}/") if key.endswith(end)]


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
    """Reads a line as a ``google.protobuf.Struct``.

    Returns:
      The object, or None if the line is not one that a Struct can hold: text that is not JSON, numbers that are not
      finite as doubles, lone surrogates, and objects that are nested too deeply.
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
