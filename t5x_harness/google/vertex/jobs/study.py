"""Runs hyperparameter tuning jobs: starts their trials as custom jobs, and records the results."""

import contextlib
import os
import queue
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import JobState, fails_if_not_started, publish
from t5x_harness.google.vertex.jobs.launching import metric_file
from t5x_harness.google.vertex.jobs.ownership import RunningJob, RunningJobs
from t5x_harness.google.vertex.jobs.replicas import Trial
from t5x_harness.google.vertex.jobs.trials import (
    DEFAULT,
    Metrics,
    Value,
    add_trial,
    end_trial,
    job_of_trial,
    read_metrics,
    select,
    suggest,
)
from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.standard import random_id
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import message_class

_CANCEL, _QUIT = "", "/"
"""The messages in the inbox that are not names of custom jobs that have ended."""


class Study(RunningJob):
    """Runs one tuning job in a separate thread.

    Args:
      running: the jobs that run in this server, including this one.
      run: runs a custom job for a trial, and calls a function with the custom job's name once it has ended.
    """

    def __init__(
        self,
        services: Services,
        job: Any,
        running: RunningJobs,
        run: Callable[[Any, Trial, Callable[[str], None]], None],
        notes: Sequence[str],
    ) -> None:
        notes = [*notes]
        if job.study_spec.algorithm == DEFAULT:
            notes.append(
                "study_spec.algorithm: the service's default is Bayesian optimization; here it is RANDOM_SEARCH"
            )
        if stopping := job.study_spec.WhichOneof("automated_stopping_spec"):
            notes.append(f"study_spec.{stopping} has no effect here: no trial is stopped early")
        super().__init__(services, job, notes)
        self._running = running
        self._run_custom_job = run
        self._begun = 0  # the number of trials
        self._active: dict[str, int] = {}  # the places of trials, by the names of their custom jobs
        self._failed = 0
        self._exhausted = False
        self._ending: tuple[JobState, endings.JobFailure] | None = None
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()

    def cancel(self) -> None:
        self._inbox.put(_CANCEL)

    def close(self) -> None:
        self._inbox.put(_QUIT)
        self._thread.join()

    def _run(self) -> None:
        options = self._services.settings.options
        try:
            for note in self._notes:
                self._log.service(note, "WARNING")
            for state, seconds in (
                (JobState.PENDING, options.queued_seconds),
                (JobState.RUNNING, options.pending_seconds),
            ):
                if self._ending is None and not self._receive(seconds):
                    self._publish(state)
            while self._ending is None or self._active:
                if self._ending is None:
                    self._begin_trials()
                if not self._active:
                    break
                self._receive(None)
            self._publish(*(self._ending or (JobState.SUCCEEDED, None)))
        except Exception as error:
            traceback.print_exc()  # for the server's log; clients get only helpful details
            self._publish(JobState.FAILED, endings.unable(f"{type(error).__name__}: {error}"))
            for name in self._active:
                self._running.end(name)
        finally:
            self._running.remove(self._job.name)

    def _receive(self, seconds: float | None) -> bool:
        """Handles the next message; returns False if none arrived within the given seconds."""
        try:
            what = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return False
        if what == _CANCEL:
            if self._ending is None:
                self._publish(JobState.CANCELLING)
                self._end(JobState.CANCELLED, endings.CANCELLED)
        elif what == _QUIT:
            self._ending = (JobState.FAILED, endings.owner_gone(f"process {os.getpid()}"))
            for name in self._active:
                self._running.end(name)
        else:
            self._trial_ended(what)
        return True

    def _begin_trials(self) -> None:
        job, limit = self._job, max(1, self._job.parallel_trial_count)
        while len(self._active) < limit and self._begun < job.max_trial_count and not self._exhausted:
            parameters = suggest(job.study_spec, job.display_name, self._begun)
            if parameters is None:
                self._exhausted = True
                return
            self._begun += 1
            self._begin(str(self._begun), parameters)

    def _begin(self, trial_id: str, parameters: Mapping[str, Value]) -> None:
        name = f"{parent_of(self._job.name)}/customJobs/{random_id()}"
        made = job_of_trial(self._job, message_class("CustomJob"), trial_id, parameters)
        job = self._services.resources.create(name, made)
        self._active[job.name] = self._begun - 1
        now = self._services.clock.now()
        self._change(lambda tuning: add_trial(tuning, trial_id, parameters, job.name, now))
        running = False
        with fails_if_not_started(self._services, job):
            self._run_custom_job(job, Trial(trial_id, self._job.name), self._inbox.put)
            running = True
        if not running:
            self._inbox.put(job.name)

    def _trial_ended(self, name: str) -> None:
        place = self._active.pop(name)
        job: Any = self._services.resources.find(name, message_class("CustomJob"))
        final, reason = self._result(name, job)
        now = self._services.clock.now()
        self._change(lambda tuning: end_trial(tuning.trials[place], final, reason, now))
        if final is None and self._ending is None:
            self._failed += 1
            # If the spec has 0, the service decides, but does not document how. Here all trials have to fail.
            if self._failed >= (self._job.max_failed_trial_count or self._job.max_trial_count):
                message = f"{self._failed} trials have failed, the last one with: {reason}"
                self._end(JobState.FAILED, endings.JobFailure(StatusCode.INTERNAL, message))

    def _result(self, name: str, job: Any) -> tuple[Metrics | None, str]:
        """Returns the final metrics of a trial, or None and the reason why it has none."""
        if job is None:
            return None, "its custom job was deleted"
        if job.state != JobState.SUCCEEDED:
            return None, job.error.message or f"its custom job is in the state JOB_STATE_{JobState(job.state).name}"
        file = metric_file(self._services.settings, name, job.job_spec)
        final = select(read_metrics(file, self._job.study_spec), self._job.study_spec)
        wanted = ", ".join(metric.metric_id for metric in self._job.study_spec.metrics)
        return final, f"The trial ended without having reported a number for {wanted}."

    def _end(self, state: JobState, error: endings.JobFailure) -> None:
        self._ending = (state, error)
        for name in self._active:
            self._running.cancel(name)

    def _publish(self, state: JobState, error: endings.JobFailure | None = None) -> None:
        if error is not None:
            self._log.service(error.message, "ERROR")
        if said := endings.MESSAGES.get(state):
            self._log.service(said, "ERROR" if error else "INFO")
        publish(self._services, self._job.name, type(self._job), state, error)

    def _change(self, change: Callable[[Any], None]) -> None:
        with contextlib.suppress(ApiError):  # the job was deleted from the state
            self._services.resources.update(self._job.name, type(self._job), change)
