"""The methods of JobService for hyperparameter tuning jobs."""

from __future__ import annotations

import shutil
import threading
from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.names import location_of
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.checking import check_job
from t5x_harness.google.vertex.jobs.custom_jobs import CustomJobs, refuse_to_delete
from t5x_harness.google.vertex.jobs.launching import job_folder
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.tuning.study import Study

__all__ = ["TuningJobs"]


class TuningJobs:
    """The tuning jobs that run here, and the methods for all.

    Args:
      api: keeps the jobs.
      ownership: knows who runs them.
      custom_jobs: run their trials.
    """

    def __init__(self, api: Api, ownership: Ownership, custom_jobs: CustomJobs) -> None:
        self._api = api
        self._ownership = ownership
        self._custom_jobs = custom_jobs
        self._lock = threading.Lock()
        self._running: dict[str, Study] = {}
        self._kind = api.message("HyperparameterTuningJob")
        ownership.cancels["hyperparameterTuningJobs"] = self._cancel_here

    def handlers(self) -> Handlers:
        """Of the methods, by name."""
        handlers = Handlers()
        handlers.on("JobService.CreateHyperparameterTuningJob")(self._create)
        handlers.on("JobService.GetHyperparameterTuningJob")(self._get)
        handlers.on("JobService.ListHyperparameterTuningJobs")(self._list)
        handlers.on("JobService.CancelHyperparameterTuningJob")(self._cancel)
        handlers.on("JobService.DeleteHyperparameterTuningJob")(self._delete)
        return handlers

    def close(self) -> None:
        """Ends all jobs that run here, and waits for it."""
        with self._lock:
            studies = list(self._running.values())
        for study in studies:
            study.close()

    def _create(self, call: Call) -> Message:
        warnings = check_job(call.request.hyperparameter_tuning_job, location_of(call.request.parent))
        made = call.standard()
        job: Any = made
        self._ownership.take(job.name)
        study = Study(self._api, job, self._custom_jobs, warnings, self._ended)
        with self._lock:
            self._running[job.name] = study
        study.start()
        return made

    def _get(self, call: Call) -> Message:
        self._ownership.look_after(call.request.name, self._kind)
        return call.standard()

    def _list(self, call: Call) -> Message:
        for name in self._api.resources.names(call.request.parent, "hyperparameterTuningJobs"):
            self._ownership.look_after(name, self._kind)
        return call.standard()

    def _cancel(self, call: Call) -> Message:
        name = call.request.name
        self._api.resources.get(name, self._kind)  # refuses one that is not there
        if not self._ownership.pass_on_cancel(name):
            self._cancel_here(name)
        return empty_pb2.Empty()

    def _delete(self, call: Call) -> Message:
        self._ownership.look_after(call.request.name, self._kind)
        refuse_to_delete(self._api.resources.get(call.request.name, self._kind))
        answer = call.standard()
        shutil.rmtree(job_folder(self._api.settings, call.request.name), ignore_errors=True)
        return answer

    def _cancel_here(self, name: str) -> None:
        with self._lock:
            study = self._running.get(name)
        if study is not None:
            study.cancel()

    def _ended(self, name: str) -> None:
        with self._lock:
            del self._running[name]
