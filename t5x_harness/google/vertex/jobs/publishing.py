"""Publishes a job's state, times and error to clients."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import JobFailure, JobState
from t5x_harness.google.vertex.jobs.variables import JobPlace
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.state import StateError
from t5x_harness.google.vertex.wire.errors import ApiError


def publish(services: Services, name: str, kind: type[Any], state: JobState, error: JobFailure | None = None) -> None:
    """Sets a job's state. A job that has ended, or was deleted, is left as it is."""
    place = JobPlace.of(name)
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
            job.error.message = error.text(place.project, place.job_id)

    with contextlib.suppress(ApiError):
        services.resources.update(name, kind, change)


@contextlib.contextmanager
def fails_if_not_started(services: Services, job: Any) -> Iterator[None]:
    """Fails a job that was created and that the block cannot start, because nothing else would ever end it.

    Raises:
      StateError: nothing can be published, because the state is lost.
    """
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        traceback.print_exc()  # for whoever runs the server; clients get only what helps them
        publish(services, job.name, type(job), JobState.FAILED, endings.unable(f"the job cannot be started: {error}"))
