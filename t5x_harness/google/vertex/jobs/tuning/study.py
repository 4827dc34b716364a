"""The methods of JobService for hyperparameter tuning jobs; each runs its trials as custom jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.custom_jobs import CustomJobs, check_job
from t5x_harness.google.vertex.jobs.endings import State
from t5x_harness.google.vertex.jobs.launching import job_folder, metric_file
from t5x_harness.google.vertex.jobs.logs import JobLog, project_of
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.publishing import fails_if_not_started, publish
from t5x_harness.google.vertex.jobs.tuning.suggesting import Past, Suggestions, Value, parameters_of
from t5x_harness.google.vertex.jobs.tuning.trials import (
    Metrics,
    add_trial,
    end_trial,
    job_of_trial,
    read_metrics,
    select,
)
from t5x_harness.google.vertex.jobs.variables import Trial
from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError

_CANCEL, _QUIT = "", "/"
"""What the inbox holds besides the names of custom jobs that have ended."""


class Study:
    """Runs one tuning job, in a thread of its own.

    Args:
      notes: what there is to say about its specs; they begin its log.
      ended: called in the thread with the job's name when it has ended.
    """

    def __init__(
        self, services: Services, job: Any, custom_jobs: CustomJobs, notes: Sequence[str], ended: Callable[[str], None]
    ) -> None:
        self._services = services
        self._job = job
        self._custom_jobs = custom_jobs
        self._notes = [*notes, *_notes_on(job.study_spec)]
        self._ended = ended
        folder = job_folder(services.settings, job.name)
        folder.mkdir(parents=True)
        self._log = JobLog(job.name, project_of(services, job.name), services.state, folder)
        spec = job.study_spec
        self._suggestions = Suggestions(parameters_of(spec), spec.algorithm, seed=job.display_name)
        self._past: list[Past] = []
        self._active: dict[str, int] = {}  # custom jobs by name, with the places of their trials
        self._failed = 0
        self._exhausted = False
        self._ending: tuple[State, endings.JobError] | None = None
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="vertex-tuning", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        self._inbox.put(_CANCEL)

    def close(self) -> None:
        """Ends all trials at once, and waits until the job has ended. May be called again."""
        self._inbox.put(_QUIT)
        self._thread.join()

    def _run(self) -> None:
        options = self._services.settings.options
        try:
            for note in self._notes:
                self._log.service(note, "WARNING")
            for state, seconds in ((State.PENDING, options.queued_seconds), (State.RUNNING, options.pending_seconds)):
                if self._ending is None and not self._hear(seconds):
                    self._publish(state)
            while self._ending is None or self._active:
                if self._ending is None:
                    self._begin_trials()
                if not self._active:
                    break
                self._hear(None)
            self._publish(*(self._ending or (State.SUCCEEDED, None)))
        except Exception as error:
            traceback.print_exc()  # for the one who runs the server; clients get as much as helps them
            self._publish(State.FAILED, endings.unable(f"{type(error).__name__}: {error}"))
            for name in self._active:
                self._custom_jobs.end(name)
        finally:
            self._ended(self._job.name)

    def _hear(self, seconds: float | None) -> bool:
        """Takes what has happened; whether anything did, in so many seconds."""
        try:
            what = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return False
        if what == _CANCEL:
            if self._ending is None:
                self._publish(State.CANCELLING)
                self._end(State.CANCELLED, endings.cancelled())
        elif what == _QUIT:
            self._ending = (State.FAILED, endings.owner_gone(f"process {os.getpid()}"))
            for name in self._active:
                self._custom_jobs.end(name)
        else:
            self._trial_ended(what)
        return True

    def _begin_trials(self) -> None:
        limit = max(1, self._job.parallel_trial_count)
        while len(self._active) < limit and len(self._past) < self._job.max_trial_count and not self._exhausted:
            parameters = self._suggestions.next(self._past)
            if parameters is None:
                self._exhausted = True
                return
            self._past.append(Past(parameters))
            trial_id = str(len(self._past))
            made = job_of_trial(self._job, self._services.message("CustomJob"), trial_id, parameters)
            job = self._custom_jobs.keep(parent_of(self._job.name), made)
            self._active[job.name] = len(self._past) - 1
            self._begin(job.name, trial_id, parameters)
            self._start(job, Trial(trial_id, self._job.name))

    def _start(self, job: Any, trial: Trial) -> None:
        running = False
        with fails_if_not_started(self._services, job):
            self._custom_jobs.run(job, trial=trial, ended=self._inbox.put)
            running = True
        if not running:
            self._inbox.put(job.name)

    def _begin(self, name: str, trial_id: str, parameters: Mapping[str, Value]) -> None:
        now = self._services.clock.now()
        self._change(lambda tuning: add_trial(tuning, trial_id, parameters, name, now))

    def _trial_ended(self, name: str) -> None:
        place = self._active.pop(name)
        job: Any = self._services.resources.find(name, self._services.message("CustomJob"))
        final, reason = self._result(name, job)
        if final is not None:
            score = final.score(self._job.study_spec.metrics[0])
            self._past[place] = dataclasses.replace(self._past[place], score=score)
        now = self._services.clock.now()
        self._change(lambda tuning: end_trial(tuning.trials[place], final, reason, now))
        if final is None and self._ending is None:
            self._failed += 1
            # Where the spec has 0, the service decides, and does not say how: here, all have to fail.
            if self._failed >= (self._job.max_failed_trial_count or self._job.max_trial_count):
                self._end(State.FAILED, endings.trials_failed(self._failed, reason))

    def _result(self, name: str, job: Any) -> tuple[Metrics | None, str]:
        """Returns what a trial has reached, or why it has not."""
        if job is None:
            return None, "its custom job was deleted"
        if job.state != State.SUCCEEDED:
            return None, job.error.message or f"its custom job is in the state JOB_STATE_{State(job.state).name}"
        file = metric_file(self._services.settings, name, job.job_spec)
        final = select(read_metrics(file, self._job.study_spec), self._job.study_spec)
        wanted = ", ".join(metric.metric_id for metric in self._job.study_spec.metrics)
        return final, f"The trial ended without having reported a number for {wanted}."

    def _end(self, state: State, error: endings.JobError) -> None:
        self._ending = (state, error)
        for name in self._active:
            self._custom_jobs.cancel(name)

    def _publish(self, state: State, error: endings.JobError | None = None) -> None:
        if error is not None:
            self._log.service(error.message, "ERROR")
        if said := endings.course(state):
            self._log.service(said, "ERROR" if error else "INFO")
        publish(self._services, self._job.name, type(self._job), state, error)

    def _change(self, change: Callable[[Any], None]) -> None:
        with contextlib.suppress(ApiError):  # the job is gone: it was deleted from the state
            self._services.resources.update(self._job.name, type(self._job), change)


def _notes_on(study_spec: Any) -> list[str]:
    """Says in what a study is not here as it is in the service."""
    stopping = study_spec.WhichOneof("automated_stopping_spec")
    return [f"study_spec.{stopping} has no effect here: no trial is stopped early"] if stopping else []


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

    def create(self, call: ApiCall) -> Message:
        """Creates a job and starts its first trials."""
        warnings = check_job(self._services, call.request.hyperparameter_tuning_job, call.request.parent)
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
