"""The jobs of a session: checked, sent, followed to their end, and canceled if the session ends before them."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.buckets.addresses import GS
from t5x_harness.buckets.folders import Folder, StagedFile, StorageError
from t5x_harness.findings.printable import PrintableLines, printable
from t5x_harness.promotion.marker import ResourcesError
from t5x_harness.promotion.order import JobOrder
from t5x_harness.promotion.settings import NOT_SENT, PromotionSettings
from t5x_harness.system.secrets import masked
from t5x_harness.vertex.arguments import OverrideError
from t5x_harness.vertex.batch import JobBatch
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import SPEC_LABEL, JobError, T5XJob
from t5x_harness.vertex.launching import LaunchedJob
from t5x_harness.vertex.logs import UNKNOWN, LogLine, RanOn
from t5x_harness.vertex.machine import ChipHoursError, MachineError
from t5x_harness.vertex.modules import ClosureError
from t5x_harness.vertex.submitted import JobOutcome, SubmittedJob, running_with_label
from t5x_harness.vertex.target import placeholders_in
from t5x_harness.vertex.waiting import WaitError

_STATES = {
    "JOB_STATE_QUEUED": "job queued",
    "JOB_STATE_PENDING": "job waiting for its machine",
    "JOB_STATE_RUNNING": "job running",
}

# T5X's train loop logs the range of steps, the number of steps per epoch, and each epoch, counted from step 0.
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
    """The progress of training according to its log; it never decreases, although every host of a pod logs the same."""

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
      log: the file that the log is written to.
      on_progress: called with ``{"stage", "step", "of", "note"}``; None to drop progress.
      stage: the stage that the job runs; empty if it is not a stage.
      say: called with each line of the log; None to drop the lines.
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
        self._printable = PrintableLines()
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
            self._say(self._printable(str(line)))
        if self._steps.read(line.text):
            self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                {"stage": self._stage, "step": self._steps.step, "of": self._steps.of, "note": self._note}
            )


class JobRefused(Exception):
    """A job is not sent; the message says why and what to change."""


class JobNotSent(Exception):
    """The session sends no jobs: ``--t5x-tpu-dry-run``."""


REFUSALS = (
    ChipHoursError, ClosureError, JobError, JobRefused, MachineError, OverrideError, StorageError, VertexError,
)  # fmt: skip
"""The exceptions that explain why a job is not sent."""


@dataclasses.dataclass(frozen=True)
class EndedJob:
    """A job that was followed to its end.

    Attributes:
      outcome: how the job ended; None if the session stopped waiting before it did.
      problem: why the job's outcome is not known; empty if it ended.
      notes: messages about results that could not be read, tracked or uploaded.
      ran_on: the devices that the job's log names.
    """

    outcome: JobOutcome | None
    problem: str = ""
    notes: tuple[str, ...] = ()
    ran_on: RanOn = UNKNOWN

    @property
    def succeeded(self) -> bool:
        """Whether the job did all of its work."""
        return self.outcome is not None and self.outcome.succeeded


class PromotedJobs:
    """Sends jobs, with no more running at once than allowed.

    From the first :meth:`send` to :meth:`close`, no Ctrl-C is lost, because running jobs cost money.

    Args:
      settings: the settings of the session.
      show: called with the text of a job that is printed instead of sent.
      say: called with each new line of the logs; None to drop the lines.
    """

    def __init__(
        self,
        settings: PromotionSettings,
        show: Callable[[str], None],
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._show = show
        self._say = say
        self._batch = JobBatch()
        self._found_again: dict[str, LaunchedJob] | None = None

    @property
    def emulated(self) -> bool:
        """Whether the jobs go to the emulated Google Cloud."""
        return self._settings.emulated

    @property
    def has_room(self) -> bool:
        """Whether another job may be sent now."""
        return len(self._batch) < self._settings.parallel

    @property
    def sends(self) -> bool:
        """Whether new jobs are sent, rather than only shown or replaced by earlier ones."""
        return not self._settings.dry_run and not self._settings.reuse

    def send(
        self, job: ContainerJob, staged: Mapping[str, Sequence[StagedFile]], run: T5XJob | None = None
    ) -> LaunchedJob:
        """Sends a job after all checks that cost nothing, once the number of running jobs allows it.

        Args:
          job: the job, with the label :data:`~t5x_harness.vertex.job.SPEC_LABEL`.
          staged: the files that it needs in the bucket, by ``gs://…`` folders.
          run: the T5X job that it runs; if that job's target has an experiment, it is tracked there.

        Raises:
          JobNotSent: the job was printed instead, and no check failed.
          Exception: one of :data:`REFUSALS`.
        """
        message = job.to_pb()
        if self._settings.dry_run:
            self._show(printable(_printed(job, staged)))
            self._check(job, message)
            raise JobNotSent(NOT_SENT)
        self._batch.interrupts.begin()
        if self._settings.reuse:
            return self._sent_before(job)
        self._check(job, message)
        if same := running_with_label(SPEC_LABEL, job.labels[SPEC_LABEL], job.target):
            raise JobRefused(
                f"the job {same[0].name} ({same[0].display_name}) does the very same and has not ended: take it with "
                f"--t5x-tpu-reuse={same[0].id}, or cancel it ({same[0].page})"
            )
        self._batch.wait_for_room(self._settings.parallel)
        bucket = Folder(f"{GS}{job.target.bucket}", job.target.project)
        if self._settings.emulated:
            bucket.create_bucket(job.target.location)
        misplaced = bucket.misplaced(job.target.location)
        launched = self._batch.submit(job, staged, run)
        launched.notes = (*filter(None, [misplaced]), *launched.notes)
        return launched

    def check(self, order: JobOrder) -> None:
        """Checks a job based only on its order.

        Raises:
          ResourcesError: the job would not be sent; the message says why.
        """
        job = dataclasses.replace(order, args=("--run_mode=train",), output=f"{GS}{order.target.bucket}/run")
        try:
            self._check(job, job.to_pb())
        except (ChipHoursError, JobRefused, MachineError) as error:
            raise ResourcesError(str(error)) from None

    def follow(
        self,
        job: LaunchedJob,
        log: Path,
        on_progress: Callable[[Mapping[str, Any]], None] | None,
        *,
        stage: str = "",
    ) -> EndedJob:
        """Waits until a job has ended, writing its log to a file.

        Args:
          job: the result of :meth:`send`.
          log: the file for the log.
          on_progress: called with ``{"stage", "step", "of", "note"}``.
          stage: the stage that the job runs; empty if it is not a stage.
        """
        watch = JobWatch(log, on_progress, stage=stage, say=self._say)
        try:
            # The results are read from the job's files; these metrics are only for its tracked run.
            end = self._batch.follow(job, on_state=watch.on_state, on_log=watch.on_log, metrics=job.tracked is not None)
        except (VertexError, WaitError) as error:
            return EndedJob(None, str(error))
        return EndedJob(end.outcome, "", end.notes, end.ran_on)

    def raise_pending_interrupt(self, raised: BaseException | None) -> None:
        """Raises a Ctrl-C that was dropped; should be called regularly.

        Args:
          raised: the exception since the last call, if any, because a Ctrl-C that was raised is not lost.

        Raises:
          KeyboardInterrupt: a Ctrl-C was dropped; see :class:`~t5x_harness.vertex.waiting.Interrupts`.
        """
        if isinstance(raised, KeyboardInterrupt):
            self._batch.interrupts.forget()
        self._batch.interrupts.raise_pending()

    def close(self) -> list[str]:
        """Cancels jobs that have not ended; returns a line for each, including those that could not be canceled.

        Then ends their runs in experiments, also with a line for each. Another Ctrl-C leaves the remaining jobs
        unchanged, and the lines say so. May be called again.
        """
        lines: list[str] = []
        try:
            self._batch.cancel(
                lines.append,
                cancelled=lambda job: f"cancelled the job {job.name}, which had not ended: {job.page}",
                refused=lambda job, error: f"{error}. It goes on and is paid for: {_by_hand(job)}",
                interrupted=lambda job: (
                    f"Ctrl-C cut short the cancelling of {job.name}. It may go on and be paid for: {_by_hand(job)}"
                ),
            )
        finally:
            self._batch.interrupts.end()
        return lines

    def _check(self, job: ContainerJob, message: Any) -> None:
        """Runs all checks of a job that work without the service."""
        from t5x_harness.google.vertex.validation.judging import judge

        if violations := judge(message, job.target.location).violations:
            listed = "\n".join(f"  {violation}" for violation in violations)
            raise JobRefused(f"Vertex AI would refuse this job:\n{listed}")
        job.chip_hours.require(self._settings.max_chip_hours)

    def _sent_before(self, job: ContainerJob) -> LaunchedJob:
        """Finds the job of ``--t5x-tpu-reuse`` that does the same work as this one."""
        if self._found_again is None:
            found = [LaunchedJob.attach(name, job.target) for name in self._settings.reuse]
            self._found_again = {one.submitted.labels.get(SPEC_LABEL, ""): one for one in found}
        digest = job.labels[SPEC_LABEL]
        if digest not in self._found_again:
            given = ", ".join(f"{one.submitted.id} ({label or 'none'})" for label, one in self._found_again.items())
            raise JobRefused(
                "--t5x-tpu-reuse: no given job does what this test asks for: config, arguments, machine or image "
                f"differ. The label {SPEC_LABEL} would be {digest}; the given jobs are {given}. Leave out the option "
                "to send a new job"
            )
        return self._found_again[digest]


def _printed(job: ContainerJob, staged: Mapping[str, Sequence[StagedFile]]) -> str:
    """Formats a job for people: cost, place, staged files, arguments and message, without secrets."""
    files = "\n".join(f"  {folder}/{file.name}" for folder, files in staged.items() for file in files)
    arguments = "\n".join(f"  {argument}" for argument in (*job.command, *job.args))
    shown = dataclasses.replace(job, env={name: masked(name, value) for name, value in job.env.items()}).to_pb()
    where = f"project {job.target.project}, {job.target.location}"
    if missing := placeholders_in(job.target, lambda name: f"--t5x-vertex-{name}"):
        where += f"\n{missing}"
    return f"{job.name}: {job.chip_hours}\nwhere: {where}\nstaged:\n{files}\narguments:\n{arguments}\nspec:\n{shown}"


def _by_hand(job: SubmittedJob) -> str:
    return f"gcloud ai custom-jobs cancel {job.id} --project={job.target.project} --region={job.target.location}"
