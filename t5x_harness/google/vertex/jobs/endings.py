"""The states of jobs and the errors with which they end, in the service's words if known, and how to publish both."""

import contextlib
import dataclasses
import enum
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.jobs.replicas import JobPlace, replica_of
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.state import StateError
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode


class JobState(enum.IntEnum):
    """The states that a job can have, with the API's numbers."""

    QUEUED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLING = 6
    CANCELLED = 7
    EXPIRED = 9

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)


@dataclasses.dataclass(frozen=True)
class JobFailure:
    """The contents of a job's ``error``; if it ``names_logs``, the service adds the address of the job's logs."""

    code: StatusCode
    message: str
    names_logs: bool = False

    def text(self, job: str) -> str:
        """Returns the whole message for the job with this name."""
        if not self.names_logs:
            return self.message
        project, job_id = JobPlace.of(job).project, JobPlace.of(job).job_id
        chosen = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job_id}"', safe=".")
        return (
            f"{self.message} To find out more about why your job exited please check the logs: "
            f"https://console.cloud.google.com/logs/viewer?project={project}"
            f"&resource=ml_job%2Fjob_id%2F{job_id}&advancedFilter={chosen}"
        )


MESSAGES = {
    JobState.PENDING: "Waiting for job to be provisioned.",
    JobState.RUNNING: "Waiting for training program to start.",
    JobState.SUCCEEDED: "Job completed successfully.",
    JobState.FAILED: "Job failed.",
    JobState.CANCELLED: "Job cancelled.",
    JobState.EXPIRED: "Job expired.",
}
"""The message that the service logs when a job enters a state. It logs none for other states."""


MAY_PASS = frozenset({6, 11, 134, 139})
"""The exit statuses after which the service tries again: SIGABRT and SIGSEGV, of subprocesses and of containers."""

KILLED = 137
"""The exit status of a process that was ended by SIGKILL."""

KILLED_NOTE = (
    "137 is SIGKILL: this machine's kernel ends processes with it when memory runs out, and others may, too. On the "
    "service a machine that runs out of memory ends the job with code 8, Replicas low on memory (as the fault oom does)"
)


def exited(unit: str, status: int) -> JobFailure:
    message = f"The replica {replica_of(unit)} exited with a non-zero status of {status}."
    return JobFailure(StatusCode.INVALID_ARGUMENT, message, names_logs=True)


def low_on_memory(unit: str) -> JobFailure:
    """Returns the error of a job whose machine has too little memory. The service names the pool, but not the logs."""
    pool = replica_of(unit).rpartition("-")[0]
    return JobFailure(
        StatusCode.RESOURCE_EXHAUSTED,
        f"Replicas low on memory: {pool}. Specify a machine with larger memory and try again.",
    )


INTERNAL = JobFailure(StatusCode.INTERNAL, "Internal error occurred for the current attempt.")
"""The error of a job for which the service itself failed. The service gives no other details."""

CANCELLED = JobFailure(StatusCode.CANCELLED, "CANCELED")

# The wording of the next two errors, and of lost, is ours, because the service documents none. Canceling a job when
# its time is up is documented for maxRunningTime of AI Platform Training, the predecessor of Vertex AI.
RAN_TOO_LONG = JobFailure(StatusCode.CANCELLED, "The job ran for longer than its scheduling.timeout and was cancelled.")
WAITED_TOO_LONG = JobFailure(
    StatusCode.RESOURCE_EXHAUSTED, "The job waited for resources for longer than its scheduling.max_wait_duration."
)

NEVER_TAKEN = JobFailure(
    StatusCode.INTERNAL, f"{PRODUCT}: the server that created this job has ended before it could run it."
)


def no_capacity(region: str) -> JobFailure:
    return JobFailure(
        StatusCode.RESOURCE_EXHAUSTED,
        f"Resources are insufficient in region: {region}. "
        "Please try a different region or use a different accelerator.",
    )


def lost(unit: str) -> JobFailure:
    """Returns the error of a job that lost a machine and is no longer restarted."""
    return JobFailure(
        StatusCode.UNAVAILABLE, f"The replica {replica_of(unit)} was preempted, and the job is not restarted any more."
    )


def unable(reason: str) -> JobFailure:
    """Returns the error of a job that cannot be run on this machine."""
    return JobFailure(StatusCode.INVALID_ARGUMENT, f"{PRODUCT}: {reason}")


def owner_gone(owner: str) -> JobFailure:
    """Returns the error of a job whose server ended while the job was running."""
    return JobFailure(
        StatusCode.INTERNAL,
        f"{PRODUCT}: the server that ran this job, {owner}, has ended, and the job's processes with it.",
    )


def publish(services: Services, name: str, kind: type[Any], state: JobState, error: JobFailure | None = None) -> None:
    """Sets a job's state. A job that has ended or was deleted is left unchanged."""
    now = services.clock.now()

    def change(job: Any) -> None:
        if job.state in list(JobState) and JobState(job.state).is_final:
            return
        job.state = int(state)
        if state is JobState.RUNNING and not job.HasField("start_time"):
            job.start_time.FromNanoseconds(now)
        if state.is_final:
            job.end_time.FromNanoseconds(now)
        if error is not None:
            job.error.code = error.code.number
            job.error.message = error.text(name)

    with contextlib.suppress(ApiError):
        services.resources.update(name, kind, change)


@contextlib.contextmanager
def fails_if_not_started(services: Services, job: Any) -> Iterator[None]:
    """Fails a newly created job if the block cannot start it, because nothing else would ever end it.

    Raises:
      StateError: nothing can be published, because the state is lost.
    """
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        traceback.print_exc()  # for the server's log; clients get only helpful details
        publish(services, job.name, type(job), JobState.FAILED, unable(f"the job cannot be started: {error}"))
