"""Auxiliary jobs from a request to their end: checked, started for each checkpoint, and followed."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t5x_harness.auxiliary.checking import findings_of
from t5x_harness.auxiliary.controller import Controller
from t5x_harness.auxiliary.jobs import (
    FOLDER,
    AuxiliaryError,
    AuxiliaryRequest,
    JobBackend,
    JobStatus,
    JobTemplate,
    TrainJob,
    template_of,
    train_job_of,
)
from t5x_harness.auxiliary.journal import Journal, Status
from t5x_harness.auxiliary.processes import Processes
from t5x_harness.buckets.addresses import GS, object_address
from t5x_harness.buckets.checkpoints import finished_checkpoints
from t5x_harness.buckets.folders import COMMITTED, AnyFolder, folder_at
from t5x_harness.buckets.locks import Lock, locked
from t5x_harness.spec import Finding
from t5x_harness.vertex.waiting import Patience

_LOCAL_PAUSE = 0.5  # listing a local folder costs nothing


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A request that has been read and checked, but none of whose jobs have started.

    Attributes:
      train: the train job.
      template: the parts that the jobs have in common.
      findings: the mistakes in the request; if there is an error among them, nothing should be started.
    """

    train: TrainJob
    template: JobTemplate
    findings: tuple[Finding, ...]

    @property
    def request(self) -> AuxiliaryRequest:
        """The request."""
        return self.template.request

    @property
    def job_folder(self) -> Path:
        """The folder for local processes' logs: with the train job's results or in the working directory."""
        at = self.train.model_dir
        top = Path(self.request.train.cwd, FOLDER) if object_address(at) else Path(at, FOLDER)
        return top.absolute() / self.request.name / "jobs"


def prepare(request: AuxiliaryRequest) -> Prepared:
    """Reads and checks a request.

    Raises:
      AuxiliaryError: the config is not a train job's, or its folder is not known.
      OverrideError: Gin cannot read a binding.
    """
    train = train_job_of(request)
    template = template_of(request, train.model_dir)
    return Prepared(train, template, tuple(findings_of(template, train)))


@dataclasses.dataclass(frozen=True)
class TrainCommand:
    """The train job as a command that the controller starts.

    Attributes:
      words: the command.
      processes: the processes that run the command and find it again.
    """

    words: Sequence[str]
    processes: Processes

    @property
    def name(self) -> str:
        """The name of the job; different commands have different names."""
        return f"train-{hashlib.sha256(repr(list(self.words)).encode()).hexdigest()[:8]}"

    def ensure(self, cwd: str, say: Callable[[str], None]) -> str:
        """Starts the job unless it runs or has succeeded; returns its place. T5X resumes from the last checkpoint."""
        where = self.processes.find(self.name)
        status = self.processes.status(where) if where is not None else JobStatus()
        if where is None or not (status.running or status.succeeded):
            where = self.processes.run(self.name, self.words, os.environ, cwd)
            say(f"the train job started: {where}")
        else:
            say(f"the train job {'goes on' if status.running else 'has succeeded before'}: {where}")
        return where


def patience_for(prepared: Prepared, check: Callable[[], None] | None = None) -> Patience:
    """Returns the pauses between looks for checkpoints: short on this machine, where ``keep`` may soon remove one.

    Args:
      prepared: the request.
      check: called before each pause; may raise an exception to end the wait.
    """
    if object_address(prepared.train.model_dir) is not None:
        return Patience.usual(check)
    return Patience(longest=_LOCAL_PAUSE, check=check)


def watch(
    prepared: Prepared,
    backend: JobBackend,
    *,
    say: Callable[[str], None] = lambda _: None,
    train_command: TrainCommand | None = None,
    train_has_ended: Callable[[], bool] = lambda: False,
    retry_failed: bool = False,
    patience: Patience | None = None,
    project: str | None = None,
) -> Status:
    """Starts and follows jobs until the jobs for the train job's last checkpoint have ended.

    Args:
      prepared: the request.
      backend: the place where jobs run.
      say: called with a line for each event.
      train_command: the train job, if the controller has to start it.
      train_has_ended: returns whether there will be no further checkpoint, if the train job runs elsewhere.
      retry_failed: whether to restart jobs that have failed.
      patience: the pauses between two looks; None for the result of :func:`patience_for`.
      project: the Google Cloud project of a train job in a bucket; None for the project in the process's settings.

    Raises:
      AuxiliaryError: another controller has these jobs, or this one cannot continue, although its jobs do.
      StorageError: the bucket does not exist, or access is refused.
    """
    train, request = prepared.train, prepared.request
    patience = patience or patience_for(prepared)
    with _opened(prepared, project) as (place, journal, lock):
        happened: list[str] = []

        def note(text: str) -> None:
            happened.append(text)
            say(text)

        controller = Controller(prepared.template, train, place, journal, backend, note, retry_failed=retry_failed)
        where = train_command.ensure(request.train.cwd, note) if train_command is not None else ""
        while True:
            lock.renew()
            status = train_command.processes.status(where) if train_command is not None else JobStatus(running=True)
            if controller.advance(train_has_ended=not status.running or train_has_ended()):
                break
            if happened:
                happened.clear()
                patience.renew()
            patience.wait(float("inf"))
        return _status(prepared, journal, controller.last_seen, status.message)


def status_of(prepared: Prepared, project: str | None = None) -> Status:
    """Returns the status of a request's jobs without starting any.

    Raises:
      AuxiliaryError: a record cannot be read.
      StorageError: the bucket does not exist, or access is refused.
    """
    train = prepared.train
    place = folder_at(train.model_dir, project)
    steps = [checkpoint.step for checkpoint in finished_checkpoints(place, train.model_dir)]
    return _status(prepared, Journal(place, prepared.request.name), max(steps, default=None))


def _status(prepared: Prepared, journal: Journal, last_seen: int | None, train_failure: str = "") -> Status:
    train, records = prepared.train, tuple(journal.records.values())
    return Status(train.model_dir, prepared.request.name, records, train.last_step, last_seen, train_failure)


@contextlib.contextmanager
def _opened(prepared: Prepared, project: str | None) -> Iterator[tuple[AnyFolder, Journal, Lock]]:
    name = prepared.request.name
    place = folder_at(prepared.train.model_dir, project)
    if place.address.startswith(GS):
        # When a train job starts, orbax removes every folder in the job's folder that lacks this object.
        place.create(f"{FOLDER}/{COMMITTED}", b"")

    def refusal(who: str) -> AuxiliaryError:
        return AuxiliaryError(
            f"{place.address}: another controller has these auxiliary jobs: {who}. Leave them to it, end it first, or "
            "give --name=NAME for jobs of their own"
        )

    with locked(place, f"{FOLDER}/{name}/controller.json", refusal) as lock:
        yield place, Journal(place, name), lock


def require_no_errors(prepared: Prepared) -> None:
    """Refuses a request that has errors.

    Raises:
      AuxiliaryError: the request has errors, all of which the message lists.
    """
    errors = [
        f"{finding.code}: {finding.message}; {finding.fix}"
        for finding in prepared.findings
        if finding.severity == "error"
    ]
    if errors:
        raise AuxiliaryError("\n".join(errors))
