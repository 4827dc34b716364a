"""The durable record of what was started and has ended, beside the checkpoints; a restarted controller goes on by it.

A record is written before its job is started, and only where there is none: neither a killed controller nor two of them
start the job of one checkpoint and mixture twice.
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
    """What has become of the job for a checkpoint and a mixture."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def has_ended(self) -> bool:
        """Whether nothing is going to happen any more."""
        return self not in (State.STARTING, State.RUNNING)


@dataclasses.dataclass(frozen=True)
class Record(JsonValue):
    """What is known of a job.

    Attributes:
      step: of its checkpoint.
      mixture: its task or mixture.
      state: see :class:`State`.
      attempt: 1, and more for a job that was killed and started again.
      job: its name for the backend, and the place where it runs, from when it runs.
      folder: that it writes into.
      message: why it failed or was skipped.
      started: when, in UTC.
      ended: likewise.
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
        """What tells it from others."""
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
      StorageError: the bucket is not there, or refuses.
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
        """The records by step and mixture, in this order."""
        return dict(sorted(self._records.items()))

    def create(self, record: Record) -> None:
        """Writes the first record of a job.

        Raises:
          AuxiliaryError: another controller has written it.
        """
        self._write(record, self._place.create(f"{self.folder}/{record.file}", _bytes(record)))

    def update(self, record: Record) -> None:
        """Writes what is new of a job.

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
                f"{self._place.address}/{name} is not a record of an auxiliary job: {error}. If nothing of it is "
                "wanted, remove it: the job is then started again"
            ) from None
        self._records[record.key], self._versions[record.key] = record, found[1]


def now() -> str:
    """Returns the time as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _bytes(record: Record) -> bytes:
    return f"{json.dumps(record.to_json(), indent=1)}\n".encode()
