"""The jobs of one ``t5x-harness submit``: sent, followed, and cancelled together by Ctrl-C."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from t5x_harness.commands.submit.output import SubmitOutput
from t5x_harness.vertex.cancelled_runs import end_run_of
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.interrupts import Interrupts
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import DuplicateError, LaunchedJob
from t5x_harness.vertex.storage import StorageError
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.waiting import Patience, WaitError

__all__ = ["Flight"]


class Flight:
    """Jobs on their way; what goes wrong with one is said, and leaves the others alone.

    Ctrl-C inside its ``with`` block cancels them all, and then ends their runs in experiments.

    Args:
      output: takes what is to be said.
      waits: whether jobs are followed to their ends.
    """

    def __init__(self, output: SubmitOutput, *, waits: bool) -> None:
        self._output = output
        self._waits = waits
        self._launched: list[LaunchedJob] = []
        self._sent: list[SubmittedJob] = []
        self._all_well = True
        self._interrupts = Interrupts()

    def __enter__(self) -> Self:
        self._interrupts.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                self._interrupts.forget()
                ending = [job for job in self._sent if self._cancel(job)]
                for job in ending:  # after all of them: what is not cancelled costs money
                    if told := end_run_of(job, self._interrupts.heed):
                        self._output.note(told)
        finally:
            self._interrupts.end()

    def launch(self, job: T5XJob, *, duplicate: bool) -> None:
        """Sends a job.

        Args:
          job: the job.
          duplicate: send it although another one does the same.
        """
        try:
            self._launched.append(
                LaunchedJob.launch(job, duplicate=duplicate, on_sent=self._on_sent, interrupts=self._interrupts)
            )
        except (DuplicateError, StorageError, VertexError) as error:
            self._fail(str(error))

    def attach(self, name: str, target: VertexTarget) -> None:
        """Takes up a job that was sent before.

        Raises:
          VertexError: there is no such job.
        """
        attached = LaunchedJob.attach(name, target)
        self._launched.append(attached)
        self._on_sent(attached.submitted)

    def finish(self) -> int:
        """Follows the jobs to their ends, if that is wanted; returns 0 if all were sent and none failed, else 1."""
        for launched in self._launched:
            if self._waits:
                self._follow(launched)
            else:
                self._output.left(launched)
        return 0 if self._all_well else 1

    def _follow(self, launched: LaunchedJob) -> None:
        name = launched.submitted.display_name
        try:
            end = launched.follow(
                on_state=lambda state: self._output.say(f"{name}: {state}"),
                on_log=lambda line: self._output.say(str(line)),
                patience=Patience.usual(heed=self._interrupts.heed),
            )
        except (VertexError, WaitError) as error:
            self._fail(str(error))
        else:
            self._sent.remove(launched.submitted)
            self._output.ended(launched, end)
            self._all_well = self._all_well and end.outcome.succeeded

    def _on_sent(self, job: SubmittedJob) -> None:
        self._sent.append(job)
        hint = "; Ctrl-C cancels it" if self._waits else ""
        self._output.say(f"{job.display_name}: {job.name}{hint}\n  {job.page}")

    def _fail(self, reason: str) -> None:
        self._all_well = False
        self._output.note(reason)

    def _cancel(self, job: SubmittedJob) -> bool:
        """Cancels a job unless it has ended; returns whether nothing of it goes on."""
        try:
            self._interrupts.heed()
            if not job.has_ended:
                job.cancel()
                self._output.note(f"cancelled: {job.name}")
            return True
        except VertexError as error:
            self._output.note(f"NOT cancelled, and it may go on at cost: {error}. See {job.page}")
        except KeyboardInterrupt:
            self._output.note(f"Ctrl-C cut short the cancelling of {job.name}. It may go on at cost: see {job.page}")
        return False
