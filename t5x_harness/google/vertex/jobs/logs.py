"""What a job's replicas say, as Cloud Logging has it, and as plain files."""

from __future__ import annotations

import bisect
import codecs
import dataclasses
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from t5x_harness.google.vertex.jobs.json_lines import read_object
from t5x_harness.google.vertex.jobs.replicas import replica_of
from t5x_harness.google.vertex.jobs.variables import JobPlace, Trial
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.state import StateStore

SERVICE = "service"
"""The name under which the service itself writes into a job's log."""

_ASPECT = "log"
_SEVERITIES = frozenset("DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split())
# What a line of JSON says of itself, which Cloud Logging takes out of it.
_SEVERITY_FIELD = "severity"
# Longer lines are cut into entries, as Cloud Logging has a limit for these.
_LONGEST_LINE = 1 << 16
# Of an entry's insertId: what is written at once has fewer lines than the second can count.
_ID_DIGITS, _NUMBER_DIGITS = 16, 4
# By how much what is behind in a log may be older: the trials of a tuning job write to its log at the same time.
_DISORDER = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class JobLog:
    """The log of one job.

    Attributes:
      state: keeps the entries, for everybody who can see the job.
      folder: keeps a plain file for each unit, such as ``workerpool0-0.log``; it is there already.
      trial: that the job runs: then it is the log of the tuning job as well, and the entries are those of that.
    """

    name: str
    project: str
    state: StateStore
    folder: Path
    trial: Trial | None = None

    def service(self, text: str, severity: str = "INFO") -> None:
        """Writes what the service says."""
        self.write(SERVICE, [text], severity)

    def write(self, unit: str, lines: Sequence[str], severity: str) -> None:
        """Writes what a unit, or the service, says.

        Args:
          lines: without their ends.
          severity: ``INFO`` for standard output, ``ERROR`` for standard error, as the service has it.
        """
        if not lines:
            return
        # What the service says may quote a file's name, which need not be Unicode.
        lines = [line.encode(errors="replace").decode() for line in lines]
        with open(self.folder / f"{unit}.log", "a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        said = _Said(
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
class _Said:
    """Lines that were written at once, as the state has them: an entry for each would be forty times as long.

    Attributes:
      id: begins those of their entries.
      at: nanoseconds since 1970, of the first; each of the others is one later.
      severity: of those that do not give themselves one.
      project: the id of the job's project.
      job_id: of the job, or of the tuning job whose trial it runs.
      trial: its id; empty for none.
    """

    id: str
    at: int
    unit: str
    severity: str
    project: str
    job_id: str
    trial: str
    lines: Sequence[str]


class Line(NamedTuple):
    """A line of a log. Lines sort as their entries do.

    Attributes:
      at: nanoseconds since 1970.
      number: its place in what was written at once.
    """

    at: int
    id: str
    number: int
    said: _Said

    def entry(self) -> dict[str, Any]:
        """Returns the line as a LogEntry object in JSON's form."""
        said = self.said
        task = replica_of(said.unit)
        stamp = _stamp(self.at)
        labels = {"ml.googleapis.com/job_id/log_area": "root"}
        if said.trial:
            labels |= {"ml.googleapis.com/trial_id": said.trial, "ml.googleapis.com/trial_type": "hyperparameter"}
        if said.unit != task:  # a host of several
            labels["ml.googleapis.com/tpu_worker_id"] = said.unit.rpartition(".")[2]
        return {
            "insertId": self.id,
            **_payload(said.lines[self.number], said.severity),
            "resource": {
                "type": "ml_job",
                "labels": {"project_id": said.project, "job_id": said.job_id, "task_name": task},
            },
            "labels": labels,
            "logName": f"projects/{said.project}/logs/{'ml.googleapis.com' if said.unit == SERVICE else task}",
            "timestamp": stamp,
            "receiveTimestamp": stamp,
        }


def project_of(services: Services, name: str) -> str:
    """Returns the id of a job's project, which its log has in the place of the number."""
    return services.projects.identifier(JobPlace.of(name).project)


def read_lines(state: StateStore, name: str, since: int = 0) -> Iterator[Line]:
    """Yields the lines of a job's log, about in the order of their times.

    Args:
      since: nanoseconds since 1970; earlier lines may be left out, and then cost nothing.
    """
    key = aspect_key(name, _ASPECT)
    first = 0
    if since:

        def at(index: int) -> int:
            return next((_Said(**json.loads(data)).at for data in state.read(key, index, index + 1)), 0)

        first = bisect.bisect_left(range(state.append(key)), since - _DISORDER, key=at)
    for data in state.read(key, first):
        said = _Said(**json.loads(data))
        for number in range(len(said.lines)):
            yield Line(said.at + number, f"{said.id}{number:0{_NUMBER_DIGITS}x}", number, said)


def jobs_with_logs(state: StateStore, project: str) -> list[str]:
    """Returns the names of jobs that have said something."""
    end = aspect_key("", _ASPECT)
    return [key.removesuffix(end) for key in state.keys(f"projects/{project}/") if key.endswith(end)]


class Lines:
    """Cuts the bytes of a stream into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that these bytes complete.

        At the end of the stream, which no bytes stand for, what is left.
        """
        *whole, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        if len(self._rest) > _LONGEST_LINE:
            end = _end_of_characters(self._rest)
            whole, self._rest = [*whole, self._rest[:end]], self._rest[end:]
        return [line.decode(errors="replace").removesuffix("\r") for line in whole if line or data]


def _end_of_characters(data: bytes) -> int:
    """Returns the length without a last character of UTF-8 that is not all there."""
    _, kept = codecs.utf_8_decode(data[-4:], "replace", False)
    return len(data) - len(data[-4:]) + kept


def _payload(line: str, severity: str) -> dict[str, Any]:
    """Returns a structured entry for a line that is a JSON object, with the severity that it gives itself."""
    if (value := read_object(line)) is not None:
        given = str(value.pop(_SEVERITY_FIELD, severity)).upper()
        return {"severity": given if given in _SEVERITIES else "DEFAULT", "jsonPayload": value}
    return {"severity": severity, "textPayload": line}


def _stamp(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"
