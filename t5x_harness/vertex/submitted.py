"""Jobs on Vertex AI that were just sent or are found by name, and the states in which they end."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from t5x_harness.vertex.arguments import OUTPUT_MACROS
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.errors import JobNameError, as_vertex_error
from t5x_harness.vertex.logs import LogReader
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.target import VertexTarget

if TYPE_CHECKING:
    from google.cloud import aiplatform
    from google.cloud.aiplatform_v1 import JobServiceClient, types

ENDED = frozenset(
    {
        "JOB_STATE_SUCCEEDED",
        "JOB_STATE_FAILED",
        "JOB_STATE_CANCELLED",
        "JOB_STATE_EXPIRED",
        "JOB_STATE_PARTIALLY_SUCCEEDED",
    }
)
"""The names of the final states. A paused job may continue."""


@dataclasses.dataclass(frozen=True)
class JobOutcome:
    """How a job ended.

    Attributes:
      state: the job's state, such as ``JOB_STATE_SUCCEEDED``.
      error: the service's error message; empty if there is none.
    """

    state: str
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the job succeeded."""
        return self.state == "JOB_STATE_SUCCEEDED"

    def __str__(self) -> str:
        name = self.state.removeprefix("JOB_STATE_").lower().replace("_", " ")
        return f"{name}: {self.error}" if self.error else name


_LATE_HERE = timedelta(seconds=2)  # the emulation receives all lines in one process, so they are almost in order
_A_WEEK = 7 * 24 * 3600
_A_DAY = 24 * 3600
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/customJobs/(?P<id>\d+)")
_MODEL_DIR = re.compile(rf"--gin\.(?:{'|'.join(OUTPUT_MACROS)})=(['\"])(?P<folder>gs://[^'\"]+)\1")


class SubmittedJob:
    """A CustomJob on Vertex AI.

    Args:
      job: the service's message about the job.
      target: where it was sent.
      service: the client with which it was sent or found.
    """

    def __init__(self, job: types.CustomJob, target: VertexTarget, service: JobServiceClient) -> None:
        self.target = target
        self._job = job
        self._service = service

    @classmethod
    def attach(cls, name: str, target: VertexTarget) -> SubmittedJob:
        """Finds a job.

        Args:
          name: its resource name, ``projects/…/locations/…/customJobs/123``, or only the number.
          target: where it was sent; the target's region is used if the name has none.

        Raises:
          JobNameError: it is neither a name nor a number.
          VertexError: there is no such job, or the job cannot be read.
        """
        found = _NAME.fullmatch(name)
        if not found and not _NUMBER.fullmatch(name):
            raise JobNameError(
                f"{name!r} names no job: give its number, or projects/{target.project}/locations/{target.location}"
                "/customJobs/NUMBER"
            )
        with as_vertex_error(f"the job {name} cannot be read", target.project):
            service = _job_service(found["location"] if found else target.location)
            job = service.get_custom_job(name=name if found else f"{target.parent}/customJobs/{name}")
            return cls(job, target, service)

    @functools.cached_property
    def resource(self) -> aiplatform.CustomJob:
        """The SDK's own object for the job.

        Raises:
          VertexError: the job cannot be read.
        """
        from google.cloud import aiplatform

        with as_vertex_error(f"the job {self.name} cannot be read", self.target.project):
            return aiplatform.CustomJob.get(self.name)

    @property
    def name(self) -> str:
        """``projects/NUMBER/locations/REGION/customJobs/NUMBER``."""
        return str(self._job.name)

    @property
    def id(self) -> str:
        """The last part of the resource name."""
        return self.name.rpartition("/")[2]

    @property
    def display_name(self) -> str:
        """The job's name in the console."""
        return str(self._job.display_name)

    @property
    def created(self) -> datetime:
        """The time at which the service accepted the job, by the service's clock."""
        moment: datetime = self._job.create_time
        return moment

    @property
    def labels(self) -> Mapping[str, str]:
        """The job's labels."""
        return dict(self._job.labels)

    @property
    def seen(self) -> str:
        """The state in which the job was found or sent; :meth:`look` reads the current one."""
        return str(self._job.state.name)

    @property
    def url(self) -> str:
        """The job's page in the console; empty for the emulated Vertex AI, which has no console."""
        if uses_emulated_google():
            return ""
        return (
            f"https://console.cloud.google.com/vertex-ai/locations/{self.target.location}/training/{self.id}"
            f"?project={self.target.project}"
        )

    @property
    def page(self) -> str:
        """The job's page in the console; for the emulated Vertex AI, its name."""
        return self.url or f"{self.name} of the emulated Vertex AI, which has no console"

    @property
    def output(self) -> str:
        """The job's ``gs://…`` folder for results."""
        return str(self._job.job_spec.base_output_directory.output_uri_prefix).rstrip("/")

    @property
    def machine(self) -> Machine:
        """The machine of the job's first worker pool."""
        return Machine.of_pb(self._job.job_spec.worker_pool_specs[0].machine_spec)

    @property
    def timeout(self) -> int:
        """The seconds after which Vertex AI ends the job; a week if the job sets no timeout."""
        seconds = self._job.job_spec.scheduling.timeout.total_seconds()
        return int(seconds) or _A_WEEK

    @property
    def max_wait(self) -> int:
        """The seconds for which the job may wait for machines before it runs; a day if the job sets no limit."""
        return int(self._job.job_spec.scheduling.max_wait_duration.total_seconds()) or _A_DAY

    @property
    def model_dir(self) -> str | None:
        """The ``gs://…`` folder that T5X writes into, or None if this package did not make the job."""
        args = self._job.job_spec.worker_pool_specs[0].container_spec.args
        found = next((match for arg in args if (match := _MODEL_DIR.fullmatch(arg))), None)
        return found["folder"].rstrip("/") if found else None

    def look(self) -> JobOutcome:
        """Returns the job's current state.

        Raises:
          VertexError: the job cannot be read.
        """
        with as_vertex_error(f"the job {self.name} cannot be read", self.target.project):
            job = self._service.get_custom_job(name=self.name)
            return JobOutcome(job.state.name, str(job.error.message))

    @property
    def has_ended(self) -> bool:
        """Whether the job's state is final."""
        return self.look().state in ENDED

    def cancel(self) -> None:
        """Asks the service to end the job; it has ended once its state is final.

        Raises:
          VertexError: the service refuses the request.
        """
        with as_vertex_error(f"the job {self.name} cannot be cancelled", self.target.project):
            self._service.cancel_custom_job(name=self.name)

    def log(self) -> LogReader:
        """Reads the job's log from the beginning."""
        if uses_emulated_google():
            return LogReader(self.target.project, self.id, late=_LATE_HERE)
        return LogReader(self.target.project, self.id)


def send(job: types.CustomJob, target: VertexTarget) -> SubmittedJob:
    """Creates a job, and returns once Vertex AI has accepted it.

    Args:
      job: the message.
      target: where the job goes.

    Raises:
      VertexError: the service refuses the request.
    """
    with as_vertex_error(f"the job {job.display_name} cannot be created", target.project):
        service = _job_service(target.location)
        return SubmittedJob(service.create_custom_job(parent=target.parent, custom_job=job), target, service)


def running_with_label(key: str, value: str, target: VertexTarget) -> list[SubmittedJob]:
    """Returns the jobs with a label that have not ended.

    Raises:
      VertexError: the jobs cannot be listed.
    """
    return [job for job in with_label(key, value, target) if job.seen not in ENDED]


def with_label(key: str, value: str, target: VertexTarget) -> list[SubmittedJob]:
    """Returns the jobs with a label, including those that have ended.

    Raises:
      VertexError: the jobs cannot be listed.
    """
    with as_vertex_error("the jobs cannot be listed", target.project):
        service = _job_service(target.location)
        found = service.list_custom_jobs({"parent": target.parent, "filter": f'labels.{key}="{value}"'})
        return [SubmittedJob(job, target, service) for job in found]


def _job_service(location: str) -> JobServiceClient:
    """Returns a client of the service in a region.

    This is the SDK's client without the rest of the SDK, which takes twice as long to import. If the program has
    imported the SDK, the SDK's settings apply, such as the credentials given to ``aiplatform.init``.
    """
    from google.cloud.aiplatform_v1 import JobServiceClient

    if "google.cloud.aiplatform" not in sys.modules:
        return JobServiceClient(client_options={"api_endpoint": f"{location}-aiplatform.googleapis.com"})
    from google.cloud import aiplatform  # waits if another thread is currently importing it

    settings = aiplatform.initializer.global_config
    client: JobServiceClient = settings.create_client(client_class=JobServiceClient, location_override=location)
    return client
