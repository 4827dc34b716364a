"""A job's state, times and error, written to where clients look."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import JobError, State
from t5x_harness.google.vertex.jobs.variables import JobPlace
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.state import StateError
from t5x_harness.google.vertex.wire.errors import ApiError


def publish(services: Services, name: str, kind: type[Any], state: State, error: JobError | None = None) -> None:
    """Sets a job's state. One that has ended, or is gone, is left as it is."""
    place = JobPlace.of(name)
    now = services.clock.now()

    def change(job: Any) -> None:
        if job.state in list(State) and State(job.state).is_final:
            return
        job.state = int(state)
        if state is State.RUNNING and not job.HasField("start_time"):
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
    """Fails a job that is created already, and cannot be started in the block: nobody else would ever end it.

    Raises:
      StateError: nothing can be published, as the state is lost.
    """
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        traceback.print_exc()  # for the owner of the server; clients get what helps them
        publish(services, job.name, type(job), State.FAILED, endings.unable(f"the job cannot be started: {error}"))
