"""The states of jobs, and why they end: in the service's words and codes, as far as they are known."""

from __future__ import annotations

import dataclasses
import enum
from urllib.parse import quote

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.jobs.replicas import replica_of
from t5x_harness.google.vertex.wire.errors import StatusCode


class State(enum.IntEnum):
    """The states of the API that a job can be in, by their numbers there."""

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
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED)


@dataclasses.dataclass(frozen=True)
class JobError:
    """What a job's ``error`` holds.

    Attributes:
      names_logs: whether the service adds where the job's logs are.
    """

    code: StatusCode
    message: str
    names_logs: bool = False

    def text(self, project: str, job_id: str) -> str:
        """Returns the whole message."""
        if not self.names_logs:
            return self.message
        address = logs_address(project, job_id)
        return f"{self.message} To find out more about why your job exited please check the logs: {address}"


_COURSE = {
    State.PENDING: "Waiting for job to be provisioned.",
    State.RUNNING: "Waiting for training program to start.",
    State.SUCCEEDED: "Job completed successfully.",
    State.FAILED: "Job failed.",
    State.CANCELLED: "Job cancelled.",
    State.EXPIRED: "Job expired.",
}


def course(state: State) -> str:
    """Returns what the service writes into a job's log when it gets into a state; empty for nothing."""
    return _COURSE.get(state, "")


def logs_address(project: str, job_id: str) -> str:
    """Returns where the console of the service shows a job's logs."""
    chosen = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job_id}"', safe=".")
    return (
        f"https://console.cloud.google.com/logs/viewer?project={project}"
        f"&resource=ml_job%2Fjob_id%2F{job_id}&advancedFilter={chosen}"
    )


# SIGABRT and SIGSEGV, as Python's processes and as containers report them.
_MAY_PASS = frozenset({6, 11, 134, 139})


def may_pass(status: int) -> bool:
    """Returns whether the service tries a job again that exits so."""
    return status in _MAY_PASS


KILLED = 137
"""The status of a process that was ended with SIGKILL."""

KILLED_NOTE = (
    "137 is SIGKILL: this machine's kernel ends processes so for want of memory, and others may, too. On the service "
    "a machine that runs out of memory ends the job with code 8, Replicas low on memory (the fault oom does so here)"
)


def exited(unit: str, status: int) -> JobError:
    message = f"The replica {replica_of(unit)} exited with a non-zero status of {status}."
    return JobError(StatusCode.INVALID_ARGUMENT, message, names_logs=True)


def low_on_memory(unit: str) -> JobError:
    """Returns the end of a job whose machine has too little memory, as the service has found.

    It names the pool, and not the logs.
    """
    pool = replica_of(unit).rpartition("-")[0]
    return JobError(
        StatusCode.RESOURCE_EXHAUSTED,
        f"Replicas low on memory: {pool}. Specify a machine with larger memory and try again.",
    )


def internal() -> JobError:
    """Returns the end of a job for which the service has failed; this is all that it says."""
    return JobError(StatusCode.INTERNAL, "Internal error occurred for the current attempt.")


def no_capacity(region: str) -> JobError:
    return JobError(
        StatusCode.RESOURCE_EXHAUSTED,
        f"Resources are insufficient in region: {region}. "
        "Please try a different region or use a different accelerator.",
    )


def cancelled() -> JobError:
    return JobError(StatusCode.CANCELLED, "CANCELED")


# The wording of the next three is not the service's, which documents none. That a job is cancelled when its time is
# over is said by the API before Vertex AI, of maxRunningTime.
def ran_too_long() -> JobError:
    """Returns the end of a job whose ``scheduling.timeout`` is over."""
    return JobError(StatusCode.CANCELLED, "The job ran for longer than its scheduling.timeout and was cancelled.")


def waited_too_long() -> JobError:
    """Returns the end of a job whose ``scheduling.max_wait_duration`` is over."""
    return JobError(
        StatusCode.RESOURCE_EXHAUSTED, "The job waited for resources for longer than its scheduling.max_wait_duration."
    )


def lost(unit: str) -> JobError:
    """Returns the end of a job that lost a machine and is not tried again."""
    return JobError(
        StatusCode.UNAVAILABLE, f"The replica {replica_of(unit)} was preempted, and the job is not restarted any more."
    )


def trials_failed(count: int, reason: str) -> JobError:
    """Returns the end of a tuning job of which as many trials have failed as may fail."""
    return JobError(StatusCode.INTERNAL, f"{count} trials have failed, the last one with: {reason}")


def unable(reason: str) -> JobError:
    """Returns the end of a job that cannot be run on this machine."""
    return JobError(StatusCode.INVALID_ARGUMENT, f"{PRODUCT}: {reason}")


def never_taken() -> JobError:
    """Returns the end of a job whose server has ended before it could say that the job is its own."""
    return JobError(
        StatusCode.INTERNAL, f"{PRODUCT}: the server that created this job has ended before it could run it."
    )


def owner_gone(owner: str) -> JobError:
    """Returns the end of a job whose server has ended without ending it."""
    return JobError(
        StatusCode.INTERNAL,
        f"{PRODUCT}: the server that ran this job, {owner}, has ended, and the job's processes with it.",
    )
