"""Jobs in flight: submitted, followed, and cancelled together where they are not to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from t5x_harness.buckets.bucket_folder import StagedFile
from t5x_harness.vertex.cancelled_runs import end_run_of
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.interrupts import Interrupts
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import LaunchedJob, RunEnd
from t5x_harness.vertex.logs import LogLine
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.waiting import Patience


@dataclasses.dataclass(frozen=True)
class CancelMessages:
    """The report of a job that is cancelled.

    Attributes:
      cancelled: of one that the service ends.
      refused: of one that it does not, with the reason.
      interrupted: of one of which nobody knows, as Ctrl-C came.
    """

    cancelled: Callable[[SubmittedJob], str]
    refused: Callable[[SubmittedJob, VertexError], str]
    interrupted: Callable[[SubmittedJob], str]


class JobBatch:
    """Jobs that have not ended.

    From :meth:`begin` to :meth:`end` no Ctrl-C is lost, as a program that goes on has jobs that cost money.

    Args:
      on_sent: called when Vertex AI has a job, before anything else is done about it.
    """

    def __init__(self, on_sent: Callable[[SubmittedJob], None] | None = None) -> None:
        self.interrupts = Interrupts()
        self._on_sent = on_sent
        self._in_flight: list[SubmittedJob] = []

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self) -> None:
        """Notes Ctrl-C from now on. May be called again."""
        self.interrupts.begin()

    def submit(
        self,
        job: ContainerJob,
        staged: Mapping[str, Sequence[StagedFile]],
        run: T5XJob | None = None,
        *,
        alone: bool = False,
    ) -> LaunchedJob:
        """Stages a job's files, sends it and tracks it; see :meth:`LaunchedJob.submit`."""
        return LaunchedJob.submit(job, staged, run=run, alone=alone, on_sent=self._sent, interrupts=self.interrupts)

    def attach(self, name: str, target: VertexTarget) -> LaunchedJob:
        """Takes up a job that was sent before; see :meth:`LaunchedJob.attach`."""
        attached = LaunchedJob.attach(name, target)
        self._sent(attached.submitted)
        return attached

    def follow(
        self,
        job: LaunchedJob,
        *,
        on_state: Callable[[str], None],
        on_log: Callable[[LogLine], None],
        metrics: bool = True,
    ) -> RunEnd:
        """Waits for the end of a job; see :meth:`LaunchedJob.follow`."""
        patience = Patience.usual(check=self.interrupts.raise_pending)
        end = job.follow(on_state=on_state, on_log=on_log, patience=patience, metrics=metrics)
        self._in_flight = [other for other in self._in_flight if other is not job.submitted]
        return end

    def wait_for_room(self, most: int) -> None:
        """Waits until fewer jobs than ``most`` have not ended."""
        patience = Patience(check=self.interrupts.raise_pending)
        while len(self) >= most:
            patience.wait(float("inf"))
            self._in_flight = [job for job in self._in_flight if not job.has_ended]

    def cancel(self, say: Callable[[str], None], messages: CancelMessages) -> None:
        """Cancels the jobs that have not ended; then, as these cost nothing, ends their runs in experiments.

        Ctrl-C meanwhile leaves what is not done yet as it is, which is said. May be called again.

        Args:
          say: takes a message for each job, and for each run.
          messages: those of jobs.
        """
        self.interrupts.forget()
        ending = []
        while self._in_flight:
            if self._cancelled(self._in_flight[0], say, messages):
                ending.append(self._in_flight[0])
            del self._in_flight[0]
        for job in ending:
            if message := end_run_of(job, self.interrupts.raise_pending):
                say(message)

    def end(self) -> None:
        """Has Ctrl-C handled as before. May be called again."""
        self.interrupts.end()

    def _sent(self, job: SubmittedJob) -> None:
        self._in_flight.append(job)
        if self._on_sent is not None:
            self._on_sent(job)

    def _cancelled(self, job: SubmittedJob, say: Callable[[str], None], messages: CancelMessages) -> bool:
        """Cancels a job unless it has ended; returns whether nothing of it goes on."""
        try:
            self.interrupts.raise_pending()
            if not job.has_ended:
                job.cancel()
                say(messages.cancelled(job))
            return True
        except VertexError as error:
            say(messages.refused(job, error))
        except KeyboardInterrupt:
            say(messages.interrupted(job))
        return False
