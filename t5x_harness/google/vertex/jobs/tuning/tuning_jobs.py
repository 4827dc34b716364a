"""The methods of JobService for hyperparameter tuning jobs."""

from __future__ import annotations

import threading
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.jobs.checking import check_job
from t5x_harness.google.vertex.jobs.custom_jobs import CustomJobs
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.publishing import fails_if_not_started
from t5x_harness.google.vertex.jobs.tuning.study import Study
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import Call, Services


class TuningJobs:
    """The tuning jobs that run here, and the methods for all."""

    def __init__(self, services: Services, ownership: Ownership, custom_jobs: CustomJobs) -> None:
        self._services = services
        self._ownership = ownership
        self._custom_jobs = custom_jobs
        self._lock = threading.Lock()
        self._running: dict[str, Study] = {}

    def close(self) -> None:
        """Ends all jobs that run here, and waits for it."""
        with self._lock:
            studies = list(self._running.values())
        for study in studies:
            study.close()

    def create(self, call: Call) -> Message:
        """Creates a job and starts its first trials."""
        warnings = check_job(call.request.hyperparameter_tuning_job, call.request.parent)
        made = run_standard(call)
        job: Any = made
        with fails_if_not_started(self._services, job):
            self._ownership.take(job.name)
            study = Study(self._services, job, self._custom_jobs, warnings, self._ended)
            with self._lock:
                self._running[job.name] = study
            try:
                study.start()
            except BaseException:
                self._ended(job.name)
                raise
        return made

    def cancel(self, name: str) -> None:
        """Cancels a job if it runs here."""
        with self._lock:
            study = self._running.get(name)
        if study is not None:
            study.cancel()

    def _ended(self, name: str) -> None:
        with self._lock:
            del self._running[name]
