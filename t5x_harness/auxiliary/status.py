"""The status of a train job's auxiliary jobs, for people and for programs."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from t5x_harness.auxiliary.journal import Record, State
from t5x_harness.auxiliary.reasons import reason_in
from t5x_harness.findings.tables import columns


@dataclasses.dataclass(frozen=True)
class Status:
    """The status of jobs.

    Attributes:
      model_dir: the train job's folder.
      name: the name of the request.
      records: records of all jobs that were started or skipped, by step and mixture.
      last_step: the train job's last step; None if its config does not say.
      last_seen: the step of the newest finished checkpoint; None if there is none.
      train_failure: why the train job that the controller started has failed; empty otherwise.
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
        rows = [
            (record.step, record.mixture, record.state, record.attempt, _took(record), _note(record))
            for record in self.records
        ]
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


def _took(record: Record) -> str:
    if not (record.started and record.ended):
        return "-"
    return f"{(datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)).total_seconds():.0f}"


def _note(record: Record) -> str:
    return reason_in(record.message or record.job)
