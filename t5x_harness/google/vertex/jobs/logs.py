"""What a job's replicas say, as Cloud Logging has it, and as plain files."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from t5x_harness.google.vertex.api.resources import aspect_key
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.replicas import replica_of
from t5x_harness.google.vertex.jobs.variables import JobPlace, Trial
from t5x_harness.google.vertex.state import StateStore

__all__ = ["SERVICE", "JobLog", "Lines", "jobs_with_logs", "project_of", "read_entries"]

SERVICE = "service"
"""The name under which the service itself writes into a job's log."""

_ASPECT = "log"
_SEVERITIES = frozenset("DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split())
# What a line of JSON says of itself, which Cloud Logging takes out of it.
_SEVERITY_FIELD = "severity"
# Longer lines are cut into entries, as Cloud Logging has a limit for these.
_LONGEST_LINE = 1 << 16


@dataclasses.dataclass(frozen=True)
class JobLog:
    """The log of one job.

    Attributes:
      name: of the job.
      project: the id of its project.
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
          unit: its name.
          lines: without their ends.
          severity: ``INFO`` for standard output, ``ERROR`` for standard error, as the service has it.
        """
        if not lines:
            return
        with open(self.folder / f"{unit}.log", "a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        now = time.time_ns()
        entries = [self._entry(unit, line, severity, now + number) for number, line in enumerate(lines)]
        for name in (self.name, *([self.trial.job] if self.trial else [])):
            self.state.append(aspect_key(name, _ASPECT), *(json.dumps(entry).encode() for entry in entries))

    def _entry(self, unit: str, line: str, severity: str, nanoseconds: int) -> dict[str, Any]:
        place = JobPlace.of(self.trial.job if self.trial else self.name)
        task = replica_of(unit)
        stamp = _stamp(nanoseconds)
        labels = {"ml.googleapis.com/job_id/log_area": "root"}
        if self.trial:
            labels |= {"ml.googleapis.com/trial_id": self.trial.id, "ml.googleapis.com/trial_type": "hyperparameter"}
        if unit != task:  # a host of several
            labels["ml.googleapis.com/tpu_worker_id"] = unit.rpartition(".")[2]
        return {
            "insertId": uuid.uuid4().hex[:20],
            **_payload(line, severity),
            "resource": {
                "type": "ml_job",
                "labels": {"project_id": self.project, "job_id": place.job_id, "task_name": task},
            },
            "labels": labels,
            "logName": f"projects/{self.project}/logs/{'ml.googleapis.com' if unit == SERVICE else task}",
            "timestamp": stamp,
            "receiveTimestamp": stamp,
        }


def project_of(api: Api, name: str) -> str:
    """The id of a job's project, which its log has in the place of the number."""
    identifier: str = api.projects.identifier(JobPlace.of(name).project)
    return identifier


def read_entries(state: StateStore, name: str, start: int = 0) -> list[dict[str, Any]]:
    """A job's log as LogEntry objects in JSON's form, oldest first.

    Args:
      state: that the job is in.
      name: of the job.
      start: how many to leave out at the beginning.
    """
    return [json.loads(entry) for entry in state.read(aspect_key(name, _ASPECT), start)]


def jobs_with_logs(state: StateStore, project: str) -> list[str]:
    """The names of jobs that have said something.

    Args:
      state: that the jobs are in.
      project: its number.
    """
    end = aspect_key("", _ASPECT)
    return [key.removesuffix(end) for key in state.keys(f"projects/{project}/") if key.endswith(end)]


class Lines:
    """Cuts the bytes of a stream into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete; at the end of the stream, which no bytes stand for, what is left."""
        *whole, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        if len(self._rest) > _LONGEST_LINE:
            whole, self._rest = [*whole, self._rest], b""
        return [line.decode(errors="replace").removesuffix("\r") for line in whole if line or data]


def _payload(line: str, severity: str) -> dict[str, Any]:
    """A line that is a JSON object is a structured entry, with the severity that it gives itself."""
    if line.startswith("{"):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            given = str(value.pop(_SEVERITY_FIELD, severity)).upper()
            return {"severity": given if given in _SEVERITIES else "DEFAULT", "jsonPayload": value}
    return {"severity": severity, "textPayload": line}


def _stamp(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"
