"""The methods of JobService, and the jobs that run in this server."""

import shutil
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.jobs.driver import Driver
from t5x_harness.google.vertex.jobs.endings import JobState, fails_if_not_started
from t5x_harness.google.vertex.jobs.launching import announced, job_folder
from t5x_harness.google.vertex.jobs.ownership import Ownership, RunningJobs
from t5x_harness.google.vertex.jobs.pipelines import look_after_all
from t5x_harness.google.vertex.jobs.programs import find_programs
from t5x_harness.google.vertex.jobs.replicas import Trial
from t5x_harness.google.vertex.jobs.study import Study
from t5x_harness.google.vertex.messages.names import KINDS, ResourceKind, location_of, parent_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata import stores
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.validation.judging import judge
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, StatusCode, failed_precondition, not_found

_NO_PERSISTENT_RESOURCES = (
    f"{PRODUCT} does not emulate PersistentResourceService, so there are none here: leave persistent_resource_id out."
)
_SET_BY_THE_SERVICE = ("name", "state", "start_time", "end_time", "error", "trials", "web_access_uris")


def check_job(services: Services, job: Any, parent: str) -> list[str]:
    """Sets the state of a job of either kind that was sent to a location to queued; returns the warnings about it.

    For a job that the service would refuse it raises ApiError: INVALID_ARGUMENT with everything that is wrong, or
    NOT_FOUND if the job names a persistent resource.
    """
    for field in _SET_BY_THE_SERVICE:
        if field in job.DESCRIPTOR.fields_by_name:
            job.ClearField(field)
    verdict = judge(job, location_of(parent), find_programs(services.settings.options.programs).spec_rules())
    if verdict.violations:
        raise ApiError.of_violations(FieldViolation(each.field, each.message) for each in verdict.violations)
    spec = job.trial_job_spec if "trial_job_spec" in job.DESCRIPTOR.fields_by_name else job.job_spec
    if spec.persistent_resource_id:
        name = f"{parent}/persistentResources/{spec.persistent_resource_id}"
        raise ApiError(StatusCode.NOT_FOUND, f"{not_found(name).message} {_NO_PERSISTENT_RESOURCES}")
    job.state = int(JobState.QUEUED)
    return [str(each) for each in verdict.warnings]


# The metadata that the SDK writes into a run that it begins, and looks for in a run that it resumes.
_BEGUN: dict[str, Any] = {"_params": {}, "_metrics": {}, "_state": "RUNNING"}


def with_run(services: Services, job: Any) -> Any:
    """Adds a run to the experiment of a custom job, and returns the job with the name of the run.

    How the service names such a run is not documented; here its name is the job's number. If the
    experiment does not exist, no run is made.
    """
    experiment = job.job_spec.experiment
    if not experiment or job.job_spec.experiment_run or not services.resources.exists(experiment):
        return job
    name = job.name.rpartition("/")[2]
    context: Any = stores.CONTEXT.message(
        display_name=name, schema_title="system.ExperimentRun", schema_version="0.0.1", metadata=_BEGUN
    )
    run = services.resources.create(f"{experiment}-{name}", context)
    stores.add_child(services, experiment, run.name)

    def name_run(kept: Any) -> None:
        kept.job_spec.experiment_run = run.name

    return services.resources.update(job.name, type(job), name_run)


class Jobs:
    """Runs both kinds of jobs."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running = RunningJobs()
        self._ownership = Ownership(services, self._running.cancel)
        self._standbys = announced(services.settings)
        self._standbys.begin()
        services.faults.armed = self._look_for_faults

    def create_custom_job(self, call: ApiCall) -> Message:
        warnings = check_job(self._services, call.request.custom_job, call.request.parent)
        made = run_standard(call)
        with fails_if_not_started(self._services, made):
            made = with_run(self._services, made)
            self._run(made, notes=warnings)
        return made

    def create_tuning_job(self, call: ApiCall) -> Message:
        """Creates a job and starts its first trials."""
        warnings = check_job(self._services, call.request.hyperparameter_tuning_job, call.request.parent)
        job: Any = run_standard(call)
        with fails_if_not_started(self._services, job):
            self._ownership.take(job.name)
            study = Study(self._services, job, self._running, self._run, warnings)
            self._running.start(job.name, study)
        return job

    def _run(
        self,
        job: Any,
        trial: Trial | None = None,
        ended: Callable[[str], None] = lambda _: None,
        notes: Sequence[str] = (),
    ) -> None:
        """Runs a custom job that was created, and calls ``ended`` with its name once it has ended.

        If the job cannot be started here, the exception says why; see :func:`fails_if_not_started`.
        """

        def end(name: str) -> None:
            self._running.remove(name)
            ended(name)

        self._ownership.take(job.name)
        driver = Driver(self._services, job, end, trial=trial, notes=notes, start=self._standbys.start)
        self._running.start(job.name, driver)

    def _look_for_faults(self) -> None:
        """Makes running jobs look for faults that were armed after they began."""
        for job in self._running.all():
            if isinstance(job, Driver):
                job.look_for_faults()

    def get(self, call: ApiCall) -> Message:
        self._ownership.look_after(call.request.name, _kind(call).message)
        return run_standard(call)

    def list(self, call: ApiCall) -> Message:
        kind = _kind(call)
        for name in self._services.resources.names(call.request.parent, kind.collection):
            self._ownership.look_after(name, kind.message)
        return run_standard(call)

    def cancel(self, call: ApiCall) -> Message:
        """Cancels a job, which may run in another server."""
        name, kind = call.request.name, _kind(call)
        self._services.resources.get(name, kind.message)  # refuses a name that no job has
        if not self._ownership.pass_on_cancel(name):
            self._running.cancel(name)
        return empty_pb2.Empty()

    def delete(self, call: ApiCall) -> Message:
        """Deletes a job that has ended, with its folder."""
        name, kind = call.request.name, _kind(call).message
        self._ownership.look_after(name, kind)
        job: Any = self._services.resources.get(name, kind)
        if not JobState(job.state).is_final:
            message = (
                f"{name} is in the state JOB_STATE_{JobState(job.state).name} and cannot be deleted: cancel it first"
            )
            raise failed_precondition(f"The {job.DESCRIPTOR.name} {message}")
        look_after_all(self._services, parent_of(name))  # a pipeline follows its job to the end
        answer = run_standard(call)
        shutil.rmtree(job_folder(self._services.settings, name), ignore_errors=True)
        return answer

    def reset(self) -> None:
        """Ends all jobs, and waits until they have ended."""
        self._running.close()

    def close(self) -> None:
        """Ends all jobs. No further jobs can be started."""
        self._standbys.close()
        self.reset()
        self._ownership.close()


def _kind(call: ApiCall) -> ResourceKind:
    """Returns the kind of jobs to which a method such as ``CancelCustomJob`` applies."""
    return next(kind for kind in KINDS.values() if kind.name in call.rpc.method)
