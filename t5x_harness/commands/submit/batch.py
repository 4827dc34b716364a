"""The jobs of one ``t5x-harness submit``: their outcome is printed, and Ctrl-C cancels them all."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from t5x_harness.buckets.folders import StorageError
from t5x_harness.commands.submit.output import SubmitOutput
from t5x_harness.vertex.batch import CancelMessages, JobBatch
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import DuplicateError, LaunchedJob, require_no_duplicate
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.waiting import WaitError

_MESSAGES = CancelMessages(
    cancelled=lambda job: f"cancelled: {job.name}",
    refused=lambda job, error: f"NOT cancelled, and it may go on at cost: {error}. See {job.page}",
    interrupted=lambda job: f"Ctrl-C cut short the cancelling of {job.name}. It may go on at cost: see {job.page}",
)


class PrintedBatch:
    """Jobs that are submitted and followed; if one fails, a message says why, and the others go on.

    Ctrl-C inside its ``with`` block cancels them all, and then ends their runs in experiments.

    Args:
      output: prints.
      waits: whether jobs are followed to their ends.
    """

    def __init__(self, output: SubmitOutput, *, waits: bool) -> None:
        self._output = output
        self._waits = waits
        self._batch = JobBatch(self._on_sent)
        self._launched: list[LaunchedJob] = []
        self._all_well = True

    def __enter__(self) -> Self:
        self._batch.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                self._batch.cancel(self._output.note, _MESSAGES)
        finally:
            self._batch.end()

    def launch(self, job: T5XJob, *, duplicate: bool) -> None:
        """Sends a job.

        Args:
          job: the job.
          duplicate: send it although another one does the same.
        """
        try:
            if not duplicate:
                require_no_duplicate(job)
            self._launched.append(
                self._batch.submit(job.container, {job.stage: job.staged_files}, job, alone=not duplicate)
            )
        except (DuplicateError, StorageError, VertexError) as error:
            self._fail(str(error))

    def attach(self, name: str, target: VertexTarget) -> None:
        """Follows a job that was sent before.

        Raises:
          VertexError: there is no such job.
        """
        self._launched.append(self._batch.attach(name, target))

    def finish(self) -> int:
        """Follows the jobs to their ends if it waits; returns 0 if all were sent and none failed, else 1."""
        for launched in self._launched:
            if self._waits:
                self._follow(launched)
            else:
                self._output.left(launched)
        return 0 if self._all_well else 1

    def _follow(self, launched: LaunchedJob) -> None:
        name = launched.submitted.display_name
        try:
            end = self._batch.follow(
                launched,
                on_state=lambda state: self._output.say(f"{name}: {state}"),
                on_log=lambda line: self._output.say(str(line)),
            )
        except (VertexError, WaitError) as error:
            self._fail(str(error))
        else:
            self._output.ended(launched, end)
            self._all_well = self._all_well and end.outcome.succeeded

    def _on_sent(self, job: SubmittedJob) -> None:
        hint = "; Ctrl-C cancels it" if self._waits else ""
        self._output.say(f"{job.display_name}: {job.name}{hint}\n  {job.page}")

    def _fail(self, reason: str) -> None:
        self._all_well = False
        self._output.note(reason)
