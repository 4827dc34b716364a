"""The methods of JobService, and the jobs that run in this server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.jobs.custom_jobs import CustomJobs
from t5x_harness.google.vertex.jobs.driver import GracePeriods
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.launching import announced, job_folder
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.tuning.study import TuningJobs
from t5x_harness.google.vertex.messages.names import KINDS, ResourceKind
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import message_class


class Jobs:
    """Gets, lists, cancels and deletes both kinds of jobs; each kind creates its own.

    Args:
      graces: how long processes have to end after SIGTERM; by default as long as on the service.
      deleting: called with a job that is about to be deleted, while it can still be read.
    """

    def __init__(
        self, services: Services, graces: GracePeriods | None = None, deleting: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._services = services
        self._deleting = deleting
        self._ownership = Ownership(services)
        self._standbys = announced(services.settings)
        self._standbys.begin()
        self.custom = CustomJobs(services, self._ownership, graces, self._standbys.start)
        self.tuning = TuningJobs(services, self._ownership, self.custom)
        self._ownership.cancels |= {"customJobs": self.custom.cancel, "hyperparameterTuningJobs": self.tuning.cancel}
        services.faults.on_arm(self.custom.look_for_faults)

    def get(self, call: ApiCall) -> Message:
        self._ownership.look_after(call.request.name, message_class(_kind(call).name))
        return run_standard(call)

    def list(self, call: ApiCall) -> Message:
        kind = _kind(call)
        for name in self._services.resources.names(call.request.parent, kind.collection):
            self._ownership.look_after(name, message_class(kind.name))
        return run_standard(call)

    def cancel(self, call: ApiCall) -> Message:
        """Cancels a job, which may run in another server."""
        name, kind = call.request.name, _kind(call)
        self._services.resources.get(name, message_class(kind.name))  # refuses a name of no job
        if not self._ownership.pass_on_cancel(name):
            self._ownership.cancels[kind.collection](name)
        return empty_pb2.Empty()

    def delete(self, call: ApiCall) -> Message:
        """Deletes a job that has ended, with its folder."""
        name, kind = call.request.name, message_class(_kind(call).name)
        self._ownership.look_after(name, kind)
        job = self._services.resources.get(name, kind)
        _refuse_to_delete(job)
        self._deleting(job)
        answer = run_standard(call)
        shutil.rmtree(job_folder(self._services.settings, name), ignore_errors=True)
        return answer

    def reset(self) -> None:
        """Ends all jobs, and waits until they have ended."""
        self.tuning.close()
        self.custom.close()

    def close(self) -> None:
        """Ends all jobs. No more can be started."""
        self._standbys.close()
        self.reset()
        self._ownership.close()


def _kind(call: ApiCall) -> ResourceKind:
    """Returns the kind of jobs that a method such as ``CancelCustomJob`` is for."""
    return next(kind for kind in KINDS.values() if kind.name in call.rpc.method)


def _refuse_to_delete(job: Any) -> None:
    """Raises FAILED_PRECONDITION for a job that has not ended."""
    state = JobState(job.state)
    if not state.is_final:
        kind = job.DESCRIPTOR.name
        raise ApiError(
            StatusCode.FAILED_PRECONDITION,
            f"The {kind} {job.name} is in the state JOB_STATE_{state.name} and cannot be deleted: cancel it first",
        )
