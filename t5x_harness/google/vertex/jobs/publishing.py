"""A job's state, times and error, written to where clients look."""

from __future__ import annotations

import contextlib
from typing import Any

from t5x_harness.google.vertex.api.errors import ApiError
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.endings import JobError
from t5x_harness.google.vertex.jobs.states import State
from t5x_harness.google.vertex.jobs.variables import JobPlace

__all__ = ["publish"]


def publish(api: Api, name: str, kind: type[Any], state: State, error: JobError | None = None) -> None:
    """Sets a job's state. One that has ended, or is gone, is left as it is.

    Args:
      api: keeps it.
      name: of the job.
      kind: the class of its message.
      state: the new one.
      error: why it ended.
    """
    place = JobPlace.of(name)
    now = api.clock.now()

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
        api.resources.update(name, kind, change)
