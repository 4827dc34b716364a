"""The methods that JobService has for each kind of job, and does alike for all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.launching import job_folder
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.states import State

__all__ = ["JobMethods"]


class JobMethods:
    """Create, get, list, cancel and delete for one kind of job.

    Args:
      api: keeps the jobs.
      ownership: knows who runs them.
      kind: of the job, such as ``CustomJob``.
      create: answers the method that creates one.
      cancel: cancels one, by its name, if it runs here.
    """

    def __init__(
        self,
        api: Api,
        ownership: Ownership,
        kind: str,
        *,
        create: Callable[[Call], Message],
        cancel: Callable[[str], None],
    ) -> None:
        self._api = api
        self._ownership = ownership
        self._name = kind
        self._kind = api.message(kind)
        self._collection = f"{kind[0].lower()}{kind[1:]}s"
        self._create = create
        self._cancel_here = cancel
        ownership.cancels[self._collection] = cancel

    def handlers(self) -> Handlers:
        """Of the methods, by name."""
        handlers = Handlers()
        handlers.on(f"JobService.Create{self._name}")(self._create)
        handlers.on(f"JobService.Get{self._name}")(self._get)
        handlers.on(f"JobService.List{self._name}s")(self._list)
        handlers.on(f"JobService.Cancel{self._name}")(self._cancel)
        handlers.on(f"JobService.Delete{self._name}")(self._delete)
        return handlers

    def _get(self, call: Call) -> Message:
        self._ownership.look_after(call.request.name, self._kind)
        return call.standard()

    def _list(self, call: Call) -> Message:
        for name in self._api.resources.names(call.request.parent, self._collection):
            self._ownership.look_after(name, self._kind)
        return call.standard()

    def _cancel(self, call: Call) -> Message:
        name = call.request.name
        self._api.resources.get(name, self._kind)  # refuses one that is not there
        if not self._ownership.pass_on_cancel(name):
            self._cancel_here(name)
        return empty_pb2.Empty()

    def _delete(self, call: Call) -> Message:
        name = call.request.name
        self._ownership.look_after(name, self._kind)
        job = self._api.resources.get(name, self._kind)
        _refuse_to_delete(job)
        self._api.deleting(job)
        answer = call.standard()
        shutil.rmtree(job_folder(self._api.settings, name), ignore_errors=True)
        return answer


def _refuse_to_delete(job: Any) -> None:
    """Raises FAILED_PRECONDITION for a job that has not ended."""
    state = State(job.state)
    if not state.is_final:
        kind = job.DESCRIPTOR.name
        raise ApiError(
            Code.FAILED_PRECONDITION,
            f"The {kind} {job.name} is in the state JOB_STATE_{state.name} and cannot be deleted: cancel it first",
        )
