"""Auxiliary jobs as Vertex AI jobs."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping

from t5x_harness.auxiliary.jobs import AuxiliaryError, AuxiliaryJob, AuxiliaryRequest, JobStatus, PassingError
from t5x_harness.buckets.folders import StorageError
from t5x_harness.vertex.arguments import RunMode
from t5x_harness.vertex.container import FOUR_HOURS, JobOptions
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.job import JobError, T5XJob
from t5x_harness.vertex.job_rules import refusals, verdict_of
from t5x_harness.vertex.launching import LaunchedJob
from t5x_harness.vertex.machine import ChipHoursError, Machine
from t5x_harness.vertex.modules import ClosureError
from t5x_harness.vertex.submitted import ENDED, SubmittedJob, with_label
from t5x_harness.vertex.target import VertexTarget

_LABEL = "t5x_harness_auxiliary"
"""The label by which a job is found again; its value is a hash of the job's name."""

_TAKEN_AWAY = ("preempted", "insufficient", "internal error")
"""Parts of the service's messages for jobs that it ended itself or had no machine for."""


@dataclasses.dataclass(frozen=True)
class VertexJobs:
    """Auxiliary jobs on Vertex AI.

    Attributes:
      request: the request.
      target: where the jobs go.
      timeout: the seconds after which Vertex AI ends a job.
      env: further environment variables of their containers.
      labels: further labels.
      options: further options of their specs.
      max_chip_hours: the maximum chip-hours that one job may use.
    """

    request: AuxiliaryRequest
    target: VertexTarget
    timeout: int = FOUR_HOURS
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: JobOptions = dataclasses.field(default_factory=JobOptions)
    max_chip_hours: float = float("inf")

    def check(self, job: AuxiliaryJob) -> None:
        """Checks one job as a sample before any is sent.

        Raises:
          AuxiliaryError: Vertex AI would refuse the job, it could use too many chip-hours, or it lacks a file.
        """
        with _as_auxiliary_errors():
            sent = self._job("check", job)
            if text := refusals(sent, verdict_of(sent)):
                raise AuxiliaryError(text)
            sent.chip_hours.require(self.max_chip_hours)

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Stages a job's files and sends the job."""
        with _as_auxiliary_errors():
            sent = self._job(name, job)
            container = sent.container
            if not self.request.is_of_t5x:  # the user's own module runs in place of the image's program
                args = tuple(arg for arg in sent.args if not arg.startswith("--run_mode="))
                container = dataclasses.replace(container, command=("python", "-m", self.request.module), args=args)
            return LaunchedJob.submit(container, {sent.stage: sent.staged_files}).submitted.name

    def find(self, name: str) -> str | None:
        """Finds a job by its label."""
        with _as_auxiliary_errors():
            found = with_label(_LABEL, _hash(name), self.target)
            return found[0].name if found else None

    def status(self, where: str) -> JobStatus:
        """Asks the service for a job's state."""
        with _as_auxiliary_errors():
            outcome = SubmittedJob.attach(where, self.target).look()
        if outcome.state not in ENDED:
            return JobStatus(running=True)
        taken_away = not outcome.succeeded and any(text in outcome.error.lower() for text in _TAKEN_AWAY)
        return JobStatus(
            succeeded=outcome.succeeded, killed=taken_away, message="" if outcome.succeeded else str(outcome)
        )

    def _job(self, name: str, job: AuxiliaryJob) -> T5XJob:
        options = self.options
        if self.request.low_priority and options.strategy is None:
            options = dataclasses.replace(options, strategy="SPOT")
        return T5XJob(
            run=job.spec,
            target=self.target,
            machine=Machine.parse(self.request.platform),
            run_mode=job.mode or RunMode.TRAIN,
            timeout=self.timeout,
            name=f"{self.request.name}-{job.mixture}-{job.step}",
            stamp=_hash(name)[:8],
            env=self.env,
            labels={**self.labels, _LABEL: _hash(name)},
            options=options,
        )


@contextlib.contextmanager
def _as_auxiliary_errors() -> Iterator[None]:
    try:
        yield
    except VertexError as error:
        if error.passing:
            raise PassingError(str(error)) from None
        raise AuxiliaryError(str(error)) from None
    except (ChipHoursError, ClosureError, JobError, StorageError) as error:
        raise AuxiliaryError(str(error)) from None


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
