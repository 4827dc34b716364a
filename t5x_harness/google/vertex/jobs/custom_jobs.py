"""The methods of JobService for custom jobs, and the check that every kind of job from a client has to pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.jobs.driver import Driver, GracePeriods
from t5x_harness.google.vertex.jobs.endings import JobState, fails_if_not_started
from t5x_harness.google.vertex.jobs.guarded import Guarded, Task
from t5x_harness.google.vertex.jobs.launching import notes_on, policy_of
from t5x_harness.google.vertex.jobs.ownership import Ownership, RunningJobs
from t5x_harness.google.vertex.jobs.programs import find_programs
from t5x_harness.google.vertex.jobs.variables import Trial
from t5x_harness.google.vertex.messages.names import location_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.links import CONTEXT
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.validation import judge
from t5x_harness.google.vertex.wire import errors
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, not_found

_NO_PERSISTENT_RESOURCES = (
    f"{PRODUCT} does not emulate PersistentResourceService, so there are none here: leave persistent_resource_id out."
)
_SET_BY_THE_SERVICE = ("name", "state", "start_time", "end_time", "error", "trials", "web_access_uris")


def check_job(services: Services, job: Any, parent: str) -> list[str]:
    """Refuses a job that the service would refuse, and sets its state to queued.

    Args:
      job: a ``CustomJob`` or a ``HyperparameterTuningJob``; it is changed.
      parent: the location that it was sent to.

    Returns:
      The warnings about it.

    Raises:
      ApiError: INVALID_ARGUMENT with all that is wrong, or NOT_FOUND because it names a persistent resource.
    """
    for field in _SET_BY_THE_SERVICE:
        if field in job.DESCRIPTOR.fields_by_name:
            job.ClearField(field)
    verdict = judge(job, location_of(parent), find_programs(services.settings.options.programs).spec_rules())
    if verdict.violations:
        raise ApiError.of_violations(errors.FieldViolation(each.field, each.message) for each in verdict.violations)
    spec = job.trial_job_spec if "trial_job_spec" in job.DESCRIPTOR.fields_by_name else job.job_spec
    if spec.persistent_resource_id:
        name = f"{parent}/persistentResources/{spec.persistent_resource_id}"
        raise ApiError(StatusCode.NOT_FOUND, f"{not_found(name).message} {_NO_PERSISTENT_RESOURCES}")
    job.state = int(JobState.QUEUED)
    return [str(each) for each in verdict.warnings]


# What the SDK writes into a run that it begins, and looks for in a run that it resumes.
_BEGUN: dict[str, Any] = {"_params": {}, "_metrics": {}, "_state": "RUNNING"}


def with_run(services: Services, job: Any) -> Any:
    """Adds a run to the experiment of a custom job, and returns the job with the name of the run.

    How the service names such a run is not documented; here its name is the job's number. If there is no such
    experiment, no run is made.
    """
    experiment = services.resources.find(job.job_spec.experiment, CONTEXT.message) if job.job_spec.experiment else None
    if experiment is None or job.job_spec.experiment_run:
        return job
    name = job.name.rpartition("/")[2]
    context: Any = CONTEXT.message(
        display_name=name, schema_title="system.ExperimentRun", schema_version="0.0.1", metadata=_BEGUN
    )
    run = services.resources.create(f"{job.job_spec.experiment}-{name}", context)
    links.add_child(services, job.job_spec.experiment, run.name)

    def name_run(kept: Any) -> None:
        kept.job_spec.experiment_run = run.name

    return services.resources.update(job.name, type(job), name_run)


class CustomJobs:
    """The custom jobs that run here, and the methods for all."""

    def __init__(
        self,
        services: Services,
        ownership: Ownership,
        graces: GracePeriods | None = None,
        start: Callable[[Task], Guarded] = Guarded,
    ) -> None:
        self._services = services
        self._ownership = ownership
        self._graces = graces
        self._start = start
        self._running: RunningJobs[Driver] = RunningJobs()

    def keep(self, parent: str, job: Any) -> Any:
        """Stores a new job that no client asked for, under a unique name."""
        return self._services.resources.create(f"{parent}/customJobs/{random.randrange(10**18, 9 * 10**18)}", job)

    def run(
        self,
        job: Any,
        *,
        trial: Trial | None = None,
        notes: Sequence[str] = (),
        ended: Callable[[str], None] | None = None,
    ) -> None:
        """Runs a job that was created.

        If the job cannot be started here, the exception says why; see :func:`fails_if_not_started`.

        Args:
          trial: the trial that the job runs, if it runs one.
          notes: notes about its spec.
          ended: called with its name when it has ended.
        """

        def end(name: str) -> None:
            self._running.remove(name)
            if ended is not None:
                ended(name)

        self._ownership.take(job.name)
        notes = [*notes, *notes_on(job.job_spec, self._services.settings)]
        policy = policy_of(job.job_spec, self._services.settings)
        driver = Driver(
            self._services, job, policy, end, trial=trial, notes=notes, graces=self._graces, start=self._start
        )
        self._running.start(job.name, driver)

    def cancel(self, name: str) -> None:
        """Cancels a job if it runs here. Its state says so when this returns."""
        if driver := self._running.get(name):
            driver.cancel()

    def end(self, name: str) -> None:
        """Ends a job at once if it runs here, and waits until its processes are gone."""
        if driver := self._running.get(name):
            driver.close()

    def look_for_faults(self) -> None:
        """Has running jobs look for faults that were armed since they began."""
        for driver in self._running.all():
            driver.look_for_faults()

    def close(self) -> None:
        """Ends all jobs that run here, and waits until they have ended."""
        self._running.close()

    def create(self, call: ApiCall) -> Message:
        warnings = check_job(self._services, call.request.custom_job, call.request.parent)
        made = run_standard(call)
        with fails_if_not_started(self._services, made):
            made = with_run(self._services, made)
            self.run(made, notes=warnings)
        return made
