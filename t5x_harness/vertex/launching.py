"""Takes a job from its first staged file to its last metric: stages, sends, tracks and follows it; reads results."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from t5x_harness.buckets.folders import Folder, StagedFile, StorageError
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import SPEC_LABEL, T5XJob
from t5x_harness.vertex.logs import UNKNOWN, LoggedDevices, LogLine, LogReader, RanOn
from t5x_harness.vertex.metrics import MetricsError, RunMetrics, read_metrics
from t5x_harness.vertex.submitted import JobOutcome, SubmittedJob, running_with_label, send
from t5x_harness.vertex.target import VertexTarget
from t5x_harness.vertex.tracking import TrackedRun, uploading
from t5x_harness.vertex.waiting import Interrupts, Patience, wait_for

_LOG_SECONDS = 5.0  # seconds between two requests: Cloud Logging allows a project sixty per minute


class DuplicateError(Exception):
    """The same job is already running; the message names it, and says how to follow it or start another."""


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """The end of a job, and its results.

    Attributes:
      outcome: how the job ended.
      metrics: the metrics that the job wrote, if any.
      notes: messages about results that could not be read or tracked.
      ran_on: the devices that the job's log names; unknown if the log was not read.
    """

    outcome: JobOutcome
    metrics: RunMetrics
    notes: tuple[str, ...] = ()
    ran_on: RanOn = UNKNOWN


class LaunchedJob:
    """A job that was sent; use :meth:`launch` or :meth:`attach`.

    Attributes:
      submitted: the job.
      tracked: the job's run in an experiment, if it is tracked.
      notes: the reasons why the job is not tracked although that was requested.
    """

    def __init__(self, submitted: SubmittedJob) -> None:
        self.submitted = submitted
        self.tracked: TrackedRun | None = None
        self.notes: tuple[str, ...] = ()

    @classmethod
    def launch(
        cls,
        job: T5XJob,
        *,
        duplicate: bool = False,
        on_sent: Callable[[SubmittedJob], None] | None = None,
        interrupts: Interrupts | None = None,
    ) -> Self:
        """Stages a job's files and sends it.

        Args:
          job: the job. If its target names an experiment, the job is tracked there.
          duplicate: whether to send it even if another job does the same.
          on_sent: see :meth:`submit`.
          interrupts: see :meth:`submit`.

        Raises:
          DuplicateError: another job does the same.
          StorageError: the bucket does not exist, or access is refused.
          VertexError: the service refuses the job.
        """
        if not duplicate and (same := running_with_label(SPEC_LABEL, job.digest, job.target)):
            raise DuplicateError(
                f"the same job runs already: {same[0].name} ({same[0].display_name}). Follow it with "
                f"--attach={same[0].id}, or start another with --duplicate"
            )
        return cls.submit(
            job.container,
            {job.stage: job.staged_files},
            run=job,
            alone=not duplicate,
            on_sent=on_sent,
            interrupts=interrupts,
        )

    @classmethod
    def submit(
        cls,
        job: ContainerJob,
        staged: Mapping[str, Sequence[StagedFile]],
        *,
        run: T5XJob | None = None,
        alone: bool = False,
        on_sent: Callable[[SubmittedJob], None] | None = None,
        interrupts: Interrupts | None = None,
    ) -> Self:
        """Stages files and sends a container's job.

        Args:
          job: the job.
          staged: the files that it needs, by ``gs://…`` folders.
          run: the run of T5X that the job is for. If its target names an experiment, the run is tracked there.
          alone: whether to cancel the job if the same run was sent first, as by another command at the same time.
          on_sent: called once Vertex AI has accepted the job, before anything else.
          interrupts: the interrupts that are held back from the sending of the job until ``on_sent`` has returned.

        Raises:
          DuplicateError: the same run was sent first, and ``alone`` is set.
          StorageError: the bucket does not exist, or access is refused.
          VertexError: the service refuses the job.
        """
        message = job.to_pb()
        for folder, files in staged.items():
            Folder(folder, job.target.project).put(files)
        with interrupts.held() if interrupts is not None else contextlib.nullcontext():
            launched = cls(send(message, job.target))
            if on_sent is not None:
                on_sent(launched.submitted)
        if run is not None and alone:
            sent, same = launched.submitted, running_with_label(SPEC_LABEL, run.digest, run.target)
            first = min([sent, *same], key=lambda each: (each.created, each.name))
            if first.name != sent.name:
                sent.cancel()
                raise DuplicateError(
                    f"the same job was sent at the same moment: {first.name} ({first.display_name}), so {sent.name} "
                    f"was cancelled. Follow the first with --attach={first.id}, or start another with --duplicate"
                )
        if run is not None and job.target.experiment is not None:
            try:
                launched.tracked = TrackedRun.begin(run, launched.submitted, job.target.experiment)
            except VertexError as error:  # the job is running, which matters more than its record
                launched.notes = (f"not tracked: {error}",)
        return launched

    @classmethod
    def attach(cls, name: str, target: VertexTarget) -> Self:
        """Finds a job that was sent earlier.

        Args:
          name: its resource name or number.
          target: where it was sent. If it names an experiment, the job's run there is completed.

        Raises:
          VertexError: there is no such job, or the service refuses the request.
        """
        attached = cls(SubmittedJob.attach(name, target))
        if target.experiment is not None:
            attached.tracked = TrackedRun.resume(attached.submitted, target.experiment)
            if attached.tracked is None:
                attached.notes = (f"not tracked: the experiment {target.experiment} has no run of this job",)
        return attached

    @property
    def model_dir(self) -> str:
        """The ``gs://…`` folder that T5X writes into."""
        return self.submitted.model_dir or self.submitted.output

    def follow(
        self,
        *,
        seconds: float | None = None,
        on_state: Callable[[str], None] | None = None,
        on_log: Callable[[LogLine], None] | None = None,
        patience: Patience | None = None,
        metrics: bool = True,
    ) -> RunEnd:
        """Waits for the job to end, following its log and uploading to TensorBoard, and reads the results.

        Args:
          seconds: the maximum time to wait; by default the job's own timeout, after its time in the queue.
          on_state: called with each new state.
          on_log: called with each line of the log.
          patience: the pauses between two looks at the job.
          metrics: whether to read the metrics that the job wrote.

        Raises:
          WaitError: the time limit was reached. The job continues.
          VertexError: the job's state cannot be read.
        """
        notes = list(self.notes)
        log = _Log(self.submitted.log(), on_log, notes)
        with contextlib.ExitStack() as stack:
            target = self.submitted.target
            if target.tensorboard is not None:
                run = self.submitted.display_name
                try:
                    stack.enter_context(uploading(self.model_dir, run, target.tensorboard, target))
                except VertexError as error:
                    notes.append(f"TensorBoard: {error}")
            most = self.submitted.timeout + self.submitted.max_wait if seconds is None else seconds
            outcome = wait_for(self.submitted, seconds=most, on_state=on_state, on_look=log.advance, patience=patience)
        log.finish()
        found, problem = metrics_of(self.submitted) if metrics else (RunMetrics({}), "")
        if problem:
            notes.append(f"metrics: {problem}")
        if self.tracked is not None:
            try:
                self.tracked.end(outcome, found)
            except (VertexError, StorageError) as error:
                notes.append(f"experiment: {error}")
        return RunEnd(outcome, found, tuple(notes), log.devices.ran_on)

    def cancel(self) -> None:
        """Asks the service to end the job.

        Raises:
          VertexError: the service refuses the request.
        """
        self.submitted.cancel()


def metrics_of(job: SubmittedJob) -> tuple[RunMetrics, str]:
    """Returns the metrics of a job, and the reason if they cannot be read."""
    try:
        return read_metrics(Folder(job.model_dir or job.output, job.target.project)), ""
    except (MetricsError, StorageError) as error:
        return RunMetrics({}), str(error)


class _Log:
    """Passes on the lines of a log. If the log can never be read, this is noted once, and the wait continues."""

    def __init__(self, reader: LogReader, on_line: Callable[[LogLine], None] | None, notes: list[str]) -> None:
        self._reader = reader
        self._on_line = on_line
        self._notes = notes
        self._is_private = uses_emulated_google()
        self._next = 0.0
        self.devices = LoggedDevices()

    def advance(self) -> bool:
        """Passes on new lines if the next request is due; returns whether there were any."""
        if self._on_line is None or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + (0.0 if self._is_private else _LOG_SECONDS)
        try:
            lines = self._reader.new_lines()
        except VertexError as error:
            if not error.passing:
                self._on_line = None
                self._notes.append(str(error))
            return False
        for line in lines:
            self.devices.read(line.text)
            self._on_line(line)
        return bool(lines)

    def finish(self) -> None:
        """Passes on the last lines, which arrive in Cloud Logging a few seconds after a job's end."""
        if self._on_line is not None and not self._is_private:
            time.sleep(_LOG_SECONDS)
        self._next = 0.0
        self.advance()
