"""Jobs in flight, which are submitted, followed, and canceled together."""

from collections.abc import Callable, Mapping, Sequence

from t5x_harness.buckets.folders import StagedFile, StorageError
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import LaunchedJob, RunEnd, metrics_of
from t5x_harness.vertex.logs import LogLine
from t5x_harness.vertex.submitted import ENDED, JobOutcome, SubmittedJob
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.tracking import TrackedRun
from t5x_harness.vertex.waiting import Interrupts, Patience


class JobBatch:
    """Jobs that have not ended.

    Args:
      on_sent: called once Vertex AI has accepted a job, before anything else.

    Attributes:
      interrupts: while these are recorded, no Ctrl-C is lost, because jobs that keep running cost money.
    """

    def __init__(self, on_sent: Callable[[SubmittedJob], None] | None = None) -> None:
        self.interrupts = Interrupts()
        self._on_sent = on_sent
        self._in_flight: list[SubmittedJob] = []

    def __len__(self) -> int:
        return len(self._in_flight)

    def submit(
        self, job: ContainerJob, staged: Mapping[str, Sequence[StagedFile]], run: T5XJob | None = None
    ) -> LaunchedJob:
        """Stages a job's files, sends it and tracks it; see :meth:`LaunchedJob.submit`."""
        return LaunchedJob.submit(job, staged, run=run, on_sent=self._sent, interrupts=self.interrupts)

    def launch(self, job: T5XJob, *, duplicate: bool) -> LaunchedJob:
        """Sends a run of T5X; see :meth:`LaunchedJob.launch`."""
        return LaunchedJob.launch(job, duplicate=duplicate, on_sent=self._sent, interrupts=self.interrupts)

    def attach(self, name: str, target: VertexTarget) -> LaunchedJob:
        """Adds a job that was sent earlier; see :meth:`LaunchedJob.attach`."""
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
        """Waits until fewer than ``most`` jobs are running."""
        patience = Patience(check=self.interrupts.raise_pending)
        while len(self) >= most:
            patience.wait(float("inf"))
            self._in_flight = [job for job in self._in_flight if not job.has_ended]

    def cancel(
        self,
        say: Callable[[str], None],
        *,
        cancelled: Callable[[SubmittedJob], str],
        refused: Callable[[SubmittedJob, VertexError], str],
        interrupted: Callable[[SubmittedJob], str],
    ) -> None:
        """Cancels the jobs that have not ended, then completes their runs in experiments, which cost nothing.

        Another Ctrl-C leaves the rest unchanged, and a message says so. May be called again.

        Args:
          say: called with a message for each job and each run.
          cancelled: returns the message about a job that the service agreed to end.
          refused: returns the message about a job that the service refused to end, with the reason.
          interrupted: returns the message about a job whose cancellation Ctrl-C interrupted.
        """
        self.interrupts.forget()
        ending = []
        while self._in_flight:
            job = self._in_flight[0]
            try:
                self.interrupts.raise_pending()
                if not job.has_ended:
                    job.cancel()
                    say(cancelled(job))
                ending.append(job)
            except VertexError as error:
                say(refused(job, error))
            except KeyboardInterrupt:
                say(interrupted(job))
            del self._in_flight[0]
        for job in ending:
            if message := _end_run_of(job, self.interrupts.raise_pending):
                say(message)

    def _sent(self, job: SubmittedJob) -> None:
        self._in_flight.append(job)
        if self._on_sent is not None:
            self._on_sent(job)


def _end_run_of(job: SubmittedJob, check: Callable[[], None]) -> str:
    """Completes the run of a job that was canceled or has ended, with the job's results so far.

    It does not wait for the service to end the job: the run of a job that is ending is marked as canceled. Ctrl-C
    leaves the run unchanged.

    Args:
      job: the job.
      check: raises KeyboardInterrupt if Ctrl-C was pressed earlier.

    Returns:
      A message that says what was done, or why nothing was done; empty for a job without a run.
    """
    experiment = job.target.experiment
    if experiment is None:
        return ""
    where = f"of the experiment {experiment}"
    later = f"t5x-harness submit --attach={job.id} completes it"
    try:
        check()
        run = TrackedRun.resume(job, experiment)
        if run is None:
            return ""
        seen = job.look()
        outcome = seen if seen.state in ENDED else JobOutcome("JOB_STATE_CANCELLED")
        metrics, problem = metrics_of(job)
        run.end(outcome, metrics)
    except (StorageError, VertexError) as error:
        return f"the run {where} for {job.name} is not completed: {error}. {later}"
    except KeyboardInterrupt:
        return f"Ctrl-C left the run {where} for {job.name} as it was: {later}"
    without = f", without metrics: {problem}" if problem else ""
    return f"the run {run.name} {where} has ended as {JobOutcome(outcome.state)}{without}"
