"""The durable records of jobs, stored next to the checkpoints; a restarted controller continues from them.

A record is written before its job is started, and only if there is none yet. So neither a killed controller nor two
controllers start the job for one checkpoint and mixture twice.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from t5x_harness.auxiliary.errors import AuxiliaryError
from t5x_harness.auxiliary.jobs import FOLDER
from t5x_harness.auxiliary.request import plain
from t5x_harness.buckets.folders import AnyFolder
from t5x_harness.system.decode import JsonValue


class State(enum.StrEnum):
    """How the job for a checkpoint and a mixture stands."""

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
    """What is known of a job.

    Attributes:
      step: the step of its checkpoint.
      mixture: its task or mixture.
      state: see :class:`State`.
      attempt: 1, and more for a job that was killed and started again.
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
    def key(self) -> tuple[int, str]:
        """What identifies the record."""
        return self.step, self.mixture

    @property
    def file(self) -> str:
        """Its name in the journal."""
        return f"checkpoint_{self.step}/{plain(self.mixture)}.json"


class Journal:
    """The records of a request.

    Args:
      place: the train job's folder.
      name: of the request.

    Raises:
      AuxiliaryError: a record cannot be read.
      StorageError: the bucket does not exist, or access is refused.
    """

    def __init__(self, place: AnyFolder, name: str) -> None:
        self._place = place
        self.folder = f"{FOLDER}/{name}/journal"
        self._records: dict[tuple[int, str], Record] = {}
        self._versions: dict[tuple[int, str], int] = {}
        for checkpoint in place.children(self.folder):
            for file in place.children(f"{self.folder}/{checkpoint}"):
                if file.endswith(".json") and not file.startswith("."):
                    self._read(f"{self.folder}/{checkpoint}/{file}")

    @property
    def records(self) -> Mapping[tuple[int, str], Record]:
        """The records by step and mixture, sorted."""
        return dict(sorted(self._records.items()))

    def create(self, record: Record) -> None:
        """Writes the first record of a job.

        Raises:
          AuxiliaryError: another controller has written it.
        """
        self._write(record, self._place.create(f"{self.folder}/{record.file}", _bytes(record)))

    def update(self, record: Record) -> None:
        """Replaces the record of a job.

        Raises:
          AuxiliaryError: another controller has written it since.
        """
        version = self._versions[record.key]
        self._write(record, self._place.replace(f"{self.folder}/{record.file}", _bytes(record), version))

    def _write(self, record: Record, version: int | None) -> None:
        if version is None:
            raise AuxiliaryError(
                f"{self._place.address}/{self.folder}/{record.file} was written by another controller, which has taken "
                "over: this one ends, and its jobs go on"
            )
        self._records[record.key], self._versions[record.key] = record, version

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
        self._records[record.key], self._versions[record.key] = record, found[1]


def now() -> str:
    """Returns the current time in the form that records use."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _bytes(record: Record) -> bytes:
    return f"{json.dumps(record.to_json(), indent=1)}\n".encode()
