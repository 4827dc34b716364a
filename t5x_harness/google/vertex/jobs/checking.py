"""A job as it comes from a client: judged by the rules, and freed of what only the service sets."""

from __future__ import annotations

from typing import Any

from t5x_harness.google.vertex.jobs.states import State
from t5x_harness.google.vertex.messages.names import location_of
from t5x_harness.google.vertex.validation import error_message, judge
from t5x_harness.google.vertex.wire import errors
from t5x_harness.google.vertex.wire.errors import ApiError, Code, not_found

_NO_PERSISTENT_RESOURCES = (
    "t5x-harness does not emulate PersistentResourceService, so there are none here: leave persistent_resource_id out."
)
_SET_BY_THE_SERVICE = ("name", "state", "start_time", "end_time", "error", "trials", "web_access_uris")


def check_job(job: Any, parent: str) -> list[str]:
    """Refuses a job that the service would refuse, and makes it one that is queued.

    Args:
      job: a ``CustomJob`` or a ``HyperparameterTuningJob``; it is changed.
      parent: the location that it was sent to.

    Returns:
      What else there is to say about it.

    Raises:
      ApiError: INVALID_ARGUMENT with all that is wrong. NOT_FOUND: it names a persistent resource.
    """
    for field in _SET_BY_THE_SERVICE:
        if field in job.DESCRIPTOR.fields_by_name:
            job.ClearField(field)
    verdict = judge(job, location_of(parent))
    if verdict.violations:
        raise ApiError(
            Code.INVALID_ARGUMENT,
            error_message(verdict.violations),
            [errors.Violation(each.field, each.message) for each in verdict.violations],
        )
    spec = job.trial_job_spec if "trial_job_spec" in job.DESCRIPTOR.fields_by_name else job.job_spec
    if spec.persistent_resource_id:
        name = f"{parent}/persistentResources/{spec.persistent_resource_id}"
        raise ApiError(Code.NOT_FOUND, f"{not_found(name).message} {_NO_PERSISTENT_RESOURCES}")
    job.state = int(State.QUEUED)
    return [str(each) for each in verdict.warnings]
