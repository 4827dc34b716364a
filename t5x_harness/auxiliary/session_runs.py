"""Auxiliary jobs as runs of a test, at the sizes of its train job; starting a run also waits for its end."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from t5x_harness.auxiliary.jobs import FOLDER, AuxiliaryError, AuxiliaryJob, AuxiliaryRequest, JobStatus
from t5x_harness.auxiliary.watching import Prepared, prepare, require_no_errors, watch
from t5x_harness.buckets.addresses import object_address
from t5x_harness.buckets.folders import Folder, folder_at
from t5x_harness.lint.rule import REPLACED_MACROS
from t5x_harness.promotion.results import last_of_each
from t5x_harness.settings.auxiliary import Auxiliary
from t5x_harness.spec import AuxiliaryRun, Changed, Reason, RunResult, RunSpec
from t5x_harness.vertex.metrics import EVALUATED, scalars_of
from t5x_harness.vertex.waiting import Patience

_EVENTS = "events.out.tfevents"
Make = Callable[[RunSpec], RunResult]
"""Makes a run, and fails the test if the run fails."""


def check_auxiliary(train: RunSpec, asked: Sequence[Auxiliary]) -> None:
    """Checks the auxiliary jobs of a test before its train job runs.

    Raises:
      AuxiliaryError: the config is not a train job's, or the auxiliary jobs cannot work.
    """
    for each in asked:
        require_no_errors(prepare(_request(train, each, "/model")))


def run_auxiliary(trained: RunResult, asked: Auxiliary, make: Make, project: str | None = None) -> RunResult:
    """Runs the auxiliary jobs of a train job that a test has run.

    Args:
      trained: the train job.
      asked: the jobs to run.
      make: see :data:`Make`.
      project: the Google Cloud project of a train job in a bucket.

    Returns:
      The train job's result with all runs, and with the metrics of the runs that evaluate.

    Raises:
      AuxiliaryError: the jobs cannot work, there is no checkpoint, or an evaluation wrote nothing for its checkpoint.
      StorageError: the bucket does not exist, or access is refused.
    """
    request = _request(trained.spec, asked, trained.model_dir, trained.steps)
    place = folder_at(trained.model_dir, project)
    # The name must be one under which no earlier call in the test has started jobs.
    names = itertools.chain([request.name], (f"{request.name}-{number}" for number in itertools.count(2)))
    name = next(each for each in names if not place.children(f"{FOLDER}/{each}"))
    prepared = prepare(dataclasses.replace(request, name=name))
    require_no_errors(prepared)
    runs = SessionRuns(prepared, trained, make, project)
    patience = Patience(longest=0.0, first=0.0)  # a started run has already ended
    status = watch(prepared, runs, train_has_ended=lambda: True, patience=patience, project=project)
    if not status.records:
        raise AuxiliaryError(f"{trained.model_dir} has no finished checkpoint")
    metrics = {name: dict(values) for name, values in trained.metrics.items()}
    for run in runs.done if prepared.template.shares_folder else ():
        for name, values in run.result.metrics.items():
            metrics.setdefault(name, {}).update(values)
    return dataclasses.replace(trained, metrics=metrics, auxiliary=(*trained.auxiliary, *runs.done))


class SessionRuns:
    """A backend whose jobs are runs of a test.

    Args:
      prepared: the request.
      trained: the result of the train job.
      make: see :data:`Make`.
      project: see :func:`run_auxiliary`.

    Attributes:
      done: the runs, in the order in which they were started.
    """

    def __init__(self, prepared: Prepared, trained: RunResult, make: Make, project: str | None) -> None:
        self._prepared = prepared
        self._trained = trained
        self._make = make
        self._project = project
        self.done: list[AuxiliaryRun] = []

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Runs a job in the folder that the controller's jobs of this kind write into."""
        here = object_address(job.folder) is None
        spec = dataclasses.replace(
            job.spec.with_settings(model_dir=job.folder if here else None),
            bindings=(*self._sizes(), *job.spec.bindings),
        )
        before = frozenset(self._files(job.folder))
        result = self._make(spec)
        if self._prepared.template.shares_folder and result.passed:
            result = self._written(job, result, before)
        self.done.append(AuxiliaryRun(self._prepared.request.name, job.step, job.mixture, result))
        return name

    def find(self, name: str) -> str | None:
        """Returns None, because a test starts each job only once."""
        del name
        return None

    def status(self, where: str) -> JobStatus:
        """Returns the status of the last run, which is the only run that the controller asks about."""
        del where
        return JobStatus(succeeded=self.done[-1].result.passed)

    def _sizes(self) -> list[str]:
        """Returns bindings for the sizes to which the train job was shrunk, if the jobs' config has them."""
        known = {str(statement) for statement in self._prepared.template.program.final.values()}
        return [
            f"{change.binding} = {change.after}"
            for change in self._trained.changes
            if change.why is Reason.SHRINK and change.what is Changed.BINDING
            if change.binding in known and change.binding not in REPLACED_MACROS
        ]

    def _written(self, job: AuxiliaryJob, result: RunResult, before: frozenset[str]) -> RunResult:
        """Adds the metrics and predictions that an evaluation wrote into the shared folder to its result.

        Raises:
          AuxiliaryError: it wrote nothing, or wrote metrics of a step that is not its checkpoint's.
        """
        new = {name: read for name, read in self._files(job.folder).items() if name not in before}
        metrics: dict[str, dict[int, float]] = {}
        for name, read in new.items():
            where, _, base = name.rpartition("/")
            if base.startswith(_EVENTS) and name.startswith(EVALUATED):
                for tag, step, value in scalars_of(read()):
                    metrics.setdefault(f"{where}/{tag}", {})[step] = value
        about = f"checkpoint_{job.step}, {job.mixture}: the evaluation"
        if not any(name.startswith(EVALUATED) for name in new):
            raise AuxiliaryError(f"{about} wrote nothing into {job.folder}/inference_eval, nor into training_eval")
        if others := {step for values in metrics.values() for step in values} - {job.step}:
            steps = ", ".join(map(str, sorted(others)))
            raise AuxiliaryError(f"{about} wrote metrics of step {steps}, and not of its checkpoint's")
        lines = b"".join(new[name]() for name in last_of_each(new)).decode().splitlines()
        predictions = tuple(json.loads(line) for line in lines if line.strip())
        return dataclasses.replace(result, metrics=metrics, predictions=predictions, checkpoints=(), steps=0)

    def _files(self, address: str) -> Mapping[str, Callable[[], bytes]]:
        """Returns a reader for each file below a folder, by its relative name."""
        if object_address(address) is None:
            paths = (path for path in Path(address).rglob("*") if path.is_file())
            return {path.relative_to(address).as_posix(): path.read_bytes for path in paths}
        folder = Folder(address, self._project)
        return {name: functools.partial(_content, folder, name) for name, _ in folder.names()}


def _content(folder: Folder, name: str) -> bytes:
    return folder.read(name) or b""


def _request(train: RunSpec, asked: Auxiliary, model_dir: str, last_step: int | None = None) -> AuxiliaryRequest:
    return AuxiliaryRequest(
        train.with_settings(model_dir=None),
        tuple(asked.mixtures),
        tuple(map(str, asked.files)),
        replace_gin_file=asked.replace_gin_file,
        final_steps=asked.final_steps,
        platform=asked.slice or train.slice,
        bindings=tuple(asked.bindings),
        model_dir=model_dir,
        skip_to_newest=asked.skip_to_newest,
        last_step=last_step,
    )
