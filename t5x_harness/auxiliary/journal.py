"""The durable records of jobs, stored next to the checkpoints, and the status derived from them.

A restarted controller continues from the records. A record is written before its job starts, and only if none exists
yet. So the job for a checkpoint and a mixture never starts twice, even if a controller is killed or there are two.
"""

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from t5x_harness.auxiliary.jobs import FOLDER, AuxiliaryError, plain
from t5x_harness.buckets.folders import AnyFolder
from t5x_harness.findings.text import columns
from t5x_harness.system.decode import JsonValue


class State(enum.StrEnum):
    """The state of the job for a checkpoint and a mixture."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self not in (State.STARTING, State.RUNNING)


@dataclasses.dataclass(frozen=True)
class Record(JsonValue):
    """The record of a job.

    Attributes:
      step: the step of its checkpoint.
      mixture: its task or mixture.
      state: the state of the job.
      attempt: 1, or a higher number for a job that was killed and started again.
      job: where it runs, as the backend names it; empty before it runs.
      folder: its output folder.
      message: why it failed or was skipped.
      started: when it started, in UTC.
      ended: when it ended, in UTC.
    """

    step: int
    mixture: str
    state: State
    attempt: int = 1
    job: str = ""
    folder: str = ""
    message: str = ""
    started: str = ""
    ended: str = ""

    @property
    def file(self) -> str:
        """The record's name in the journal."""
        return f"checkpoint_{self.step}/{plain(self.mixture)}.json"


class Journal:
    """The records of a request.

    Args:
      place: the train job's folder.
      name: the name of the request.

    Raises:
      AuxiliaryError: a record cannot be read.
      StorageError: the bucket does not exist, or access is refused.
    """

    def __init__(self, place: AnyFolder, name: str) -> None:
        self._place = place
        self.folder = f"{FOLDER}/{name}/journal"
        self._kept: dict[tuple[int, str], tuple[Record, int]] = {}
        for checkpoint in place.children(self.folder):
            for file in place.children(f"{self.folder}/{checkpoint}"):
                if file.endswith(".json") and not file.startswith("."):
                    self._read(f"{self.folder}/{checkpoint}/{file}")

    @property
    def records(self) -> Mapping[tuple[int, str], Record]:
        """The records by step and mixture, in sorted order."""
        return {key: record for key, (record, _) in sorted(self._kept.items())}

    def create(self, record: Record) -> None:
        """Writes the first record of a job.

        Raises:
          AuxiliaryError: another controller has already written it.
        """
        self._write(record, self._place.create(f"{self.folder}/{record.file}", _bytes(record)))

    def update(self, record: Record) -> None:
        """Replaces the record of a job.

        Raises:
          AuxiliaryError: another controller has written it in the meantime.
        """
        _, version = self._kept[record.step, record.mixture]
        self._write(record, self._place.replace(f"{self.folder}/{record.file}", _bytes(record), version))

    def _write(self, record: Record, version: int | None) -> None:
        if version is None:
            raise AuxiliaryError(
                f"{self._place.address}/{self.folder}/{record.file} was written by another controller, which has taken "
                "over: this one ends, and its jobs go on"
            )
        self._kept[record.step, record.mixture] = record, version

    def _read(self, name: str) -> None:
        found = self._place.read_version(name)
        if found is None:
            return
        try:
            record = Record.from_json(json.loads(found[0]))
        except (ValueError, TypeError) as error:
            raise AuxiliaryError(
                f"{self._place.address}/{name} is not a record of an auxiliary job: {error}. If it is not "
                "needed, remove it: the job is then started again"
            ) from None
        self._kept[record.step, record.mixture] = record, found[1]


def now() -> str:
    """Returns the current time in the format that records use."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _bytes(record: Record) -> bytes:
    return f"{json.dumps(record.to_json(), indent=1)}\n".encode()


_TRACEBACK = "Traceback (most recent call last):"
_PROGRAM = re.compile(r"t5x(-harness[ \w]*)?: ")
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)(:|$)")
# Gin appends this text to the message of an error that passes through it.
_GIN = re.compile(r"\s*In call to configurable ")


def reason_in(text: str) -> str:
    """Returns the first line of the error at the end of a log, or the log's last line; ``-`` for an empty one.

    Args:
      text: the end of a log; its first line may be cut off.
    """
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip() and not _GIN.match(line)]
    if not lines:
        return "-"
    if _PROGRAM.match(lines[-1]):  # an error message from a program of T5X or of the harness
        return lines[-1]
    begin = max((index for index, line in enumerate(lines) if line.strip() == _TRACEBACK), default=None)
    if begin is not None:
        return next((line for line in lines[begin + 1 :] if not line[0].isspace()), lines[-1])
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])


@dataclasses.dataclass(frozen=True)
class Status:
    """The status of jobs.

    Attributes:
      model_dir: the train job's folder.
      name: the name of the request.
      records: the records of all jobs that were started or skipped, by step and mixture.
      last_step: the train job's last step; None if its config does not name it.
      last_seen: the step of the newest finished checkpoint; None if there is none.
      train_failure: why the train job that the controller started has failed; empty if it has not.
    """

    model_dir: str
    name: str
    records: tuple[Record, ...]
    last_step: int | None = None
    last_seen: int | None = None
    train_failure: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether all jobs have succeeded or were skipped on request, and the train job has not failed."""
        fine = (State.SUCCEEDED, State.SKIPPED)
        return not self.train_failure and all(record.state in fine for record in self.records)

    @property
    def running(self) -> tuple[Record, ...]:
        """The jobs that have not ended."""
        return tuple(record for record in self.records if not record.state.has_ended)

    def text(self) -> str:
        """Formats the status as a table and a summary line."""
        rows = []
        for record in self.records:
            took, note = "-", reason_in(record.message or record.job)
            if record.started and record.ended:
                lasted = datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)
                took = f"{lasted.total_seconds():.0f}"
            rows.append((record.step, record.mixture, record.state, record.attempt, took, note))
        header = ("checkpoint", "mixture", "state", "attempt", "seconds", "job, or why")
        states = [record.state for record in self.records]
        counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
        seen = f"checkpoint_{self.last_seen}" if self.last_seen is not None else "none yet"
        last = f" of {self.last_step} steps" if self.last_step is not None else ""
        lines = [str(columns(rows, header))] if rows else []
        lines.append(f"{self.model_dir}, {self.name}: {counts or 'no jobs'}; newest checkpoint: {seen}{last}")
        if self.train_failure:
            lines.append(f"the train job failed: {self.train_failure}")
        return "\n".join(lines)

    def values(self) -> dict[str, Any]:
        """Returns the status as plain values for JSON."""
        about = dataclasses.asdict(self)
        del about["records"]
        return {**about, "succeeded": self.succeeded, "jobs": [record.to_json() for record in self.records]}
