"""The methods of JobService for custom jobs."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.names import location_of
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.checking import check_job
from t5x_harness.google.vertex.jobs.driver import Driver, Graces, Trial
from t5x_harness.google.vertex.jobs.launching import job_folder, notes_on, policy_of
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.states import State

__all__ = ["CustomJobs", "refuse_to_delete"]


class CustomJobs:
    """The custom jobs that run here, and the methods for all.

    Args:
      api: keeps the jobs.
      ownership: knows who runs them.
      graces: for their processes.
    """

    def __init__(self, api: Api, ownership: Ownership, graces: Graces | None = None) -> None:
        self._api = api
        self._ownership = ownership
        self._graces = graces
        self._lock = threading.Lock()
        self._running: dict[str, Driver] = {}
        self._kind = api.message("CustomJob")
        ownership.cancels["customJobs"] = self.cancel

    def handlers(self) -> Handlers:
        """Of the methods, by name."""
        handlers = Handlers()
        handlers.on("JobService.CreateCustomJob")(self._create)
        handlers.on("JobService.GetCustomJob")(self._get)
        handlers.on("JobService.ListCustomJobs")(self._list)
        handlers.on("JobService.CancelCustomJob")(self._cancel)
        handlers.on("JobService.DeleteCustomJob")(self._delete)
        return handlers

    def create(self, parent: str, job: Any) -> Any:
        """Keeps a new job under a name of its own; for one that no client has asked for.

        Args:
          parent: the location.
          job: its message.
        """
        return self._api.resources.create(f"{parent}/customJobs/{random.randrange(10**18, 9 * 10**18)}", job)

    def run(
        self,
        job: Any,
        *,
        trial: Trial | None = None,
        notes: Sequence[str] = (),
        ended: Callable[[str], None] | None = None,
    ) -> None:
        """Runs a job that was created.

        Args:
          job: its message.
          trial: which it runs.
          notes: what there is to say about its spec.
          ended: called, with its name, when it has ended.
        """

        def end(name: str) -> None:
            with self._lock:
                del self._running[name]
            if ended is not None:
                ended(name)

        self._ownership.take(job.name)
        notes = [*notes, *notes_on(job.job_spec, self._api.settings)]
        policy = policy_of(job.job_spec, self._api.settings)
        driver = Driver(self._api, job, policy, end, trial=trial, notes=notes, graces=self._graces)
        with self._lock:
            self._running[job.name] = driver
        driver.start()

    def cancel(self, name: str) -> None:
        """Cancels a job if it runs here; its state says so when this returns."""
        if driver := self._driver(name):
            driver.cancel()

    def end(self, name: str) -> None:
        """Ends a job at once if it runs here, and waits until nothing is left of it."""
        if driver := self._driver(name):
            driver.close()

    def look_for_faults(self) -> None:
        """Has running jobs meet faults that were armed meanwhile."""
        for driver in self._drivers():
            driver.look_for_faults()

    def close(self) -> None:
        """Ends all jobs that run here, and waits for it."""
        for driver in self._drivers():
            driver.close()

    def _create(self, call: Call) -> Message:
        warnings = check_job(call.request.custom_job, location_of(call.request.parent))
        made = call.standard()
        self.run(made, notes=warnings)
        return made

    def _get(self, call: Call) -> Message:
        self._ownership.look_after(call.request.name, self._kind)
        return call.standard()

    def _list(self, call: Call) -> Message:
        for name in self._api.resources.names(call.request.parent, "customJobs"):
            self._ownership.look_after(name, self._kind)
        return call.standard()

    def _cancel(self, call: Call) -> Message:
        name = call.request.name
        self._api.resources.get(name, self._kind)  # refuses one that is not there
        if not self._ownership.pass_on_cancel(name):
            self.cancel(name)
        return empty_pb2.Empty()

    def _delete(self, call: Call) -> Message:
        name = call.request.name
        self._ownership.look_after(name, self._kind)
        refuse_to_delete(self._api.resources.get(name, self._kind))
        answer = call.standard()
        shutil.rmtree(job_folder(self._api.settings, name), ignore_errors=True)
        return answer

    def _driver(self, name: str) -> Driver | None:
        with self._lock:
            return self._running.get(name)

    def _drivers(self) -> list[Driver]:
        with self._lock:
            return list(self._running.values())


def refuse_to_delete(job: Any) -> None:
    """Refuses to delete a job that has not ended.

    Raises:
      ApiError: FAILED_PRECONDITION.
    """
    state = State(job.state)
    if not state.is_final:
        kind = job.DESCRIPTOR.name
        raise ApiError(
            Code.FAILED_PRECONDITION,
            f"The {kind} {job.name} is in the state JOB_STATE_{state.name} and cannot be deleted: cancel it first",
        )
