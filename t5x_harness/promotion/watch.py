"""Writes a job's log to a file, and derives its progress from the lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.vertex.logs import LogLine

_STATES = {
    "JOB_STATE_QUEUED": "job queued",
    "JOB_STATE_PENDING": "job waiting for its machine",
    "JOB_STATE_RUNNING": "job running",
}

# T5X's train loop logs the range of steps, the steps of an epoch, and each epoch, numbered from step 0.
_RANGE = re.compile(r"Starting main loop over steps (\d+)-(\d+)")
_LENGTH = re.compile(r'artificial "epochs" of (\d+) steps')
_EPOCH = re.compile(r"Epoch (\d+) of \d+")
# T5X logs metrics every stats_period steps.
_METRICS = re.compile(r"\[(\d+)\] collection=train ")
# Lines of the embedded runtime.
_FROM_TO = re.compile(r"Epoch (\d+): training from step (\d+) to (\d+)")
_STANDS = re.compile(r"t5x-harness: training is at step (\d+)")
_SAVED = re.compile(r"Saving the checkpoint of step (\d+)")


class Steps:
    """The progress of training according to its log; it never decreases, as every host of a pod logs the same."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.of: int | None = None
        self._first = 0
        self._length = 0

    def read(self, text: str) -> bool:
        """Reads a line, and returns whether the progress has changed."""
        before = (self.step, self.of)
        if found := _RANGE.search(text):
            self._first, self.of = int(found[1]), int(found[2])
            self._reach(self._first)
        elif found := _LENGTH.search(text):
            self._length = int(found[1])
        elif self._length and (found := _EPOCH.search(text)):
            self._reach(self._first + self._length * (int(found[1]) - self._first // self._length))
        elif found := _FROM_TO.search(text):
            self._reach(int(found[2]))
            self.of = max(self.of or 0, int(found[3]))
        elif found := _SAVED.search(text) or _STANDS.search(text) or _METRICS.search(text):
            self._reach(int(found[1]))
        return (self.step, self.of) != before

    def _reach(self, step: int) -> None:
        self.step = max(self.step or 0, step)


class JobWatch:
    """Receives the states and log lines of a job.

    Args:
      log: the file to write the log to.
      on_progress: called with ``{"stage", "step", "of", "note"}``; None to drop progress.
      stage: the stage that the job runs; empty if it is not a stage.
      say: takes each line of the log; None to drop them.
    """

    def __init__(
        self,
        log: Path,
        on_progress: Callable[[Mapping[str, Any]], None] | None,
        *,
        stage: str = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._log = log
        self._on_progress = on_progress
        self._stage = stage
        self._say = say
        self._note = ""
        self._steps = Steps()

    def on_state(self, state: str) -> None:
        """Reports a new state of the job."""
        self._note = _STATES.get(state, "")
        self._tell()

    def on_log(self, line: LogLine) -> None:
        """Writes a line of the log, and reports progress."""
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        if self._say is not None:
            self._say(str(line))
        if self._steps.read(line.text):
            self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                {"stage": self._stage, "step": self._steps.step, "of": self._steps.of, "note": self._note}
            )
