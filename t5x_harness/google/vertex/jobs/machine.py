"""The life of a custom job: its states, the events that change them, and the commands that follow. Nothing is run here.

The rules are those of the service's page "Understand the custom training service": a job ends when its primary replica
exits with 0; any other exit also ends it, except for the statuses of crashes that may be transient; after internal
errors there are three attempts in total; a worker whose machine is lost starts again up to five times, and the whole
job up to three times.
"""

import dataclasses
import enum
from collections.abc import Mapping

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import JobFailure, JobState

WORKER_RESTARTS = 5
"""The number of times that one worker starts again after it lost its machine."""

JOB_RESTARTS = 3
"""The number of times that the whole job starts again after that, or after a crash that may be transient."""

INTERNAL_ATTEMPTS = 3
"""The total number of attempts if the service itself fails."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """The policy that a job's spec asks for.

    Attributes:
      units: the names of its processes: one for each replica, or one for each host of a replica that is a TPU slice.
      primary: the units of the first pool, whose end is the end of the job.
      restarts_as_whole: whether losing a machine restarts the whole job, either because the spec asks for it or because
        the machine was part of a slice.
      retries: whether the job is tried again at all.
    """

    units: frozenset[str]
    primary: frozenset[str]
    restarts_as_whole: bool = False
    retries: bool = True


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """The decision that applies once no process of a job is left: a final state, or PENDING for another attempt."""

    state: JobState
    error: JobFailure | None = None


_AGAIN = _Outcome(JobState.PENDING)


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a job.

    Attributes:
      state: the state that clients see.
      attempt: the number of the attempt, from 1.
      live: the units that have processes.
      lost: the live units that start again once their processes are gone.
      restarts: the number of times that each unit was restarted on its own.
      decided: the decision that applies once no unit is live.
    """

    state: JobState = JobState.QUEUED
    error: JobFailure | None = None
    attempt: int = 1
    live: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    restarts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    decided: _Outcome | None = None


class JobEvent(enum.Enum):
    """An event of a job as a whole."""

    ADMITTED = "the service took the job out of its queue"
    PROVISIONED = "the machines are available"
    CANCEL_ASKED = "a client wants the job to end"
    RUN_TOO_LONG = "the job has been running for as long as its scheduling allows"
    WAITED_TOO_LONG = "the job has waited for machines as long as its scheduling allows"
    INTERNAL_FAILURE = "the service itself failed, and does not say how"
    EXPIRED = "the service ends the job for reasons of its own"


@dataclasses.dataclass(frozen=True)
class Exited:
    """The processes of a unit have ended. A shell reports the status: 128 plus the number of a signal that ended it."""

    unit: str
    status: int


@dataclasses.dataclass(frozen=True)
class Lost:
    """The machine of a unit is taken away: preempted, or under maintenance."""

    unit: str


@dataclasses.dataclass(frozen=True)
class OutOfMemory:
    """The machine of a unit has too little memory; the service ends the job."""

    unit: str


@dataclasses.dataclass(frozen=True)
class CannotRun:
    """The job cannot be run, and trying again would not help."""

    error: JobFailure


Event = JobEvent | Exited | Lost | OutOfMemory | CannotRun


@dataclasses.dataclass(frozen=True)
class StartUnits:
    """Start the processes of these units."""

    units: frozenset[str]


@dataclasses.dataclass(frozen=True)
class StopUnits:
    """End the processes of these units; if ``warned``, with the grace period of canceled and preempted processes."""

    units: frozenset[str]
    warned: bool = True


Command = StartUnits | StopUnits


def advance(progress: Progress, event: Event, policy: Policy) -> tuple[Progress, tuple[Command, ...]]:
    """Applies an event to a job.

    An event that comes too late, such as the exit of a stopped unit or a second cancellation, does not change any
    decision.

    Returns:
      The job's new progress, and the commands to carry out, in order.
    """
    if progress.state.is_final:
        return progress, ()
    match event:
        case JobEvent.ADMITTED if progress.state is JobState.QUEUED:
            return dataclasses.replace(progress, state=JobState.PENDING), ()
        case JobEvent.PROVISIONED if progress.state is JobState.PENDING and not progress.decided:
            return dataclasses.replace(progress, state=JobState.RUNNING, live=policy.units), (StartUnits(policy.units),)
        case Exited(unit, status):
            return _exited(progress, unit, status, policy)
        case Lost(unit) if unit in progress.live - progress.lost and not progress.decided:
            return _lost(progress, unit, policy)
        case JobEvent.INTERNAL_FAILURE if not progress.decided:
            if policy.retries and progress.attempt < INTERNAL_ATTEMPTS:
                return _decide(progress, _AGAIN)
            return _decide(progress, _Outcome(JobState.FAILED, endings.INTERNAL))
        case JobEvent.EXPIRED if not progress.decided:
            return _decide(progress, _Outcome(JobState.EXPIRED))
        case OutOfMemory(unit) if not progress.decided:
            return _decide(progress, _Outcome(JobState.FAILED, endings.low_on_memory(unit)))
        case CannotRun(error) if not progress.decided:
            return _decide(progress, _Outcome(JobState.FAILED, error))
        case JobEvent.CANCEL_ASKED:
            return _cancel(progress, endings.CANCELLED)
        case JobEvent.RUN_TOO_LONG if progress.state is JobState.RUNNING:
            return _cancel(progress, endings.RAN_TOO_LONG)
        case JobEvent.WAITED_TOO_LONG if progress.state in (JobState.QUEUED, JobState.PENDING):
            return _decide(progress, _Outcome(JobState.FAILED, endings.WAITED_TOO_LONG))
    return progress, ()


def _exited(progress: Progress, unit: str, status: int, policy: Policy) -> tuple[Progress, tuple[Command, ...]]:
    if unit not in progress.live:
        return progress, ()
    if unit in progress.lost:
        rest = dataclasses.replace(progress, lost=progress.lost - {unit})
        if not progress.decided:
            return rest, (StartUnits(frozenset({unit})),)
        progress = rest
    progress = dataclasses.replace(progress, live=progress.live - {unit})
    if progress.decided:
        return _settled(progress), ()
    if status != 0:
        if status in endings.MAY_PASS and policy.retries and progress.attempt <= JOB_RESTARTS:
            return _decide(progress, _AGAIN)
        return _decide(progress, _Outcome(JobState.FAILED, endings.exited(unit, status)))
    if not progress.live & policy.primary:
        return _decide(progress, _Outcome(JobState.SUCCEEDED))
    return progress, ()


def _lost(progress: Progress, unit: str, policy: Policy) -> tuple[Progress, tuple[Command, ...]]:
    count = progress.restarts.get(unit, 0) + 1
    if policy.retries and not policy.restarts_as_whole and count <= WORKER_RESTARTS:
        restarts = {**progress.restarts, unit: count}
        lost = dataclasses.replace(progress, lost=progress.lost | {unit}, restarts=restarts)
        return lost, (StopUnits(frozenset({unit})),)
    again = policy.retries and progress.attempt <= JOB_RESTARTS
    # All hosts of a slice are taken away together.
    return _decide(progress, _AGAIN if again else _Outcome(JobState.FAILED, endings.lost(unit)), warned=True)


def _cancel(progress: Progress, error: JobFailure) -> tuple[Progress, tuple[Command, ...]]:
    if progress.state is JobState.CANCELLING:
        return progress, ()
    # The documented way out of CANCELLING: a job that has ended in the meantime keeps its ending.
    ending = progress.decided if progress.decided not in (None, _AGAIN) else _Outcome(JobState.CANCELLED, error)
    return _decide(dataclasses.replace(progress, state=JobState.CANCELLING, decided=None), ending)


def _decide(progress: Progress, decided: _Outcome, *, warned: bool = False) -> tuple[Progress, tuple[Command, ...]]:
    progress = dataclasses.replace(progress, decided=decided)
    warned = warned or decided.state is JobState.CANCELLED
    return _settled(progress), (StopUnits(progress.live, warned),) if progress.live else ()


def _settled(progress: Progress) -> Progress:
    """Applies a decided ending once no process is left."""
    if progress.live or progress.decided is None:
        return progress
    if progress.decided is _AGAIN:
        return Progress(JobState.PENDING, attempt=progress.attempt + 1)
    return dataclasses.replace(progress, state=progress.decided.state, error=progress.decided.error)
