"""A job in Vertex AI Experiments and Vertex AI TensorBoard: its parameters, metrics, lineage and event files.

The run in an experiment begins and ends with the job. It has an execution for the job, whose inputs are the run's
config and its dataset and whose output is the model; the console draws these as lineage. Vertex AI does not upload the
event files of TPU jobs, even if their spec requests it, so the SDK's uploader does this from the bucket.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

from t5x_harness.buckets.addresses import bucket_of, object_address
from t5x_harness.buckets.folders import Folder
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.values import format_value, is_required
from t5x_harness.vertex.errors import VertexError, as_vertex_error
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.metrics import RunMetrics, number_for_json
from t5x_harness.vertex.submitted import JobOutcome, SubmittedJob
from t5x_harness.vertex.target import LONGEST_RUN, VertexTarget

_LAST_LOOK = 3.0
"""The seconds in which the uploader, which looks once per second, finds the last files that were written."""


def create_tensorboard(display_name: str, target: VertexTarget) -> str:
    """Creates a TensorBoard, and returns its resource name.

    Raises:
      VertexError: the service refuses the request.
    """
    from google.cloud import aiplatform

    with as_vertex_error(f"the TensorBoard {display_name} cannot be created", target.project):
        return str(aiplatform.Tensorboard.create(display_name=display_name, **target.where).resource_name)


def upload_events(model_dir: str, run: str, tensorboard: str, target: VertexTarget) -> None:
    """Uploads the existing event files of a run.

    Args:
      model_dir: the ``gs://…`` folder; each folder below it with event files becomes a run in the TensorBoard.
      run: the name of the TensorBoard's experiment.
      tensorboard: the number or resource name of the TensorBoard.
      target: the project and region.

    Raises:
      VertexError: the folder's address names no bucket, the service refuses, or the uploader's libraries are not
        installed.
    """
    if object_address(model_dir) is not None and not bucket_of(model_dir):
        raise VertexError(
            f"the event files of {run} cannot be uploaded: {model_dir!r} names no bucket: give a folder of one, as "
            "gs://BUCKET/FOLDER"
        )
    from google.cloud import aiplatform

    with _as_upload_error(run, target):
        aiplatform.upload_tb_log(
            tensorboard_id=_number(tensorboard),
            tensorboard_experiment_name=run,
            logdir=model_dir,
            verbosity=0,
            **target.where,
        )


@contextlib.contextmanager
def uploading(model_dir: str, run: str, tensorboard: str, target: VertexTarget) -> Iterator[None]:
    """Uploads a run's event files as they grow during a block, and once more when the block ends.

    Raises:
      VertexError: the service refuses, or the uploader's libraries are not installed.
    """
    from google.cloud import aiplatform

    with _as_upload_error(run, target):
        aiplatform.start_upload_tb_log(
            tensorboard_id=_number(tensorboard),
            tensorboard_experiment_name=run,
            logdir=model_dir,
            **target.where,
        )
    try:
        yield
    finally:
        time.sleep(_LAST_LOOK)
        aiplatform.end_upload_tb_log()


@contextlib.contextmanager
def _as_upload_error(run: str, target: VertexTarget) -> Iterator[None]:
    with as_vertex_error(f"the event files of {run} cannot be uploaded", target.project):
        try:
            yield
        except ImportError as error:
            raise VertexError(f"the uploader needs TensorFlow and TensorBoard: {error}") from None


def _number(tensorboard: str) -> str:
    return tensorboard.rpartition("/")[2]


CONFIG = "config.gin"
"""The file into which T5X writes its config when it begins."""

MODEL_INFO = "model-info.txt"
"""The file into which T5X's training writes the model's parameters."""

_LONGEST_PARAMETER = 500
_STATES: Mapping[str, str] = MappingProxyType({"JOB_STATE_SUCCEEDED": "COMPLETE", "JOB_STATE_CANCELLED": "CANCELLED"})
"""The states of executions and runs by the state of the job; every other final state becomes FAILED."""
_MODEL, _DATASET, _FILE, _JOB = "system.Model", "system.Dataset", "system.Artifact", "system.CustomJobExecution"


class TrackedRun:
    """The run of a job in an experiment; use :meth:`begin` or :meth:`resume`."""

    def __init__(self, run: Any, job: SubmittedJob) -> None:
        self._run = run
        self._job = job
        self._project = job.target.project
        self._where = job.target.where

    @classmethod
    def begin(cls, job: T5XJob, submitted: SubmittedJob, experiment: str) -> Self:
        """Creates the run, with the job's parameters.

        Args:
          job: the job.
          submitted: the job on Vertex AI.
          experiment: the name of the experiment, which is created if it does not exist.

        Raises:
          VertexError: the service refuses, or there is already a run with this name.
        """
        from google.cloud import aiplatform

        target = submitted.target
        name = _run_name(submitted, experiment)
        settings = {
            "job": submitted.name,
            "run_mode": job.run_mode.value,
            "machine": str(job.machine),
            "image": job.target.image,
            "model_dir": job.model_dir,
        }
        with as_vertex_error(f"the experiment {experiment} cannot have the run {name}", target.project):
            parent = aiplatform.Experiment.get_or_create(experiment, **target.where)
            run = aiplatform.ExperimentRun.create(name, experiment=parent, **target.where)
            tracked = cls(run, submitted)
            run.log_params({**parameters_of(job.closure.program), **settings})
            tracked._link(job)
        return tracked

    @classmethod
    def resume(cls, submitted: SubmittedJob, experiment: str) -> Self | None:
        """Returns the run of a job that was sent earlier, or None if it has none.

        Raises:
          VertexError: the service refuses the request.
        """
        from google.cloud import aiplatform

        name, target = _run_name(submitted, experiment), submitted.target
        with as_vertex_error(f"the experiment {experiment} cannot be read", target.project):
            run = aiplatform.ExperimentRun.get(name, experiment=experiment, **target.where)
            return cls(run, submitted) if run is not None else None

    @property
    def name(self) -> str:
        """The name of the run in its experiment."""
        return str(self._run.name)

    def end(self, outcome: JobOutcome, metrics: RunMetrics) -> None:
        """Completes the run: its files, its metrics as summary metrics, and its state.

        Args:
          outcome: how the job ended.
          metrics: the metrics that the job wrote.

        Raises:
          VertexError: the service refuses the request.
          StorageError: the bucket cannot be read.
        """
        from google.cloud import aiplatform

        with as_vertex_error(f"the run {self.name} cannot be completed", self._project):
            self._add_files(Folder(self._job.model_dir or self._job.output, self._project))
            if summary := metrics.summary():
                self._run.log_metrics({name: number_for_json(value) for name, value in summary.items()})
            state = aiplatform.gapic.Execution.State[_STATES.get(outcome.state, "FAILED")]
            for execution in self._executions():
                execution.update(state=state)
            self._run.end_run(state=state)

    def _link(self, job: T5XJob) -> None:
        """Creates the execution with its inputs and its output."""
        from google.cloud import aiplatform

        program = job.closure.program
        task = _text_of(program, "MIXTURE_OR_TASK_NAME")
        dataset = self._artifact(
            _DATASET,
            task or "dataset",
            job.run.settings.tfds_data_dir or "",
            {"mixture_or_task": task, "module": _text_of(program, "MIXTURE_OR_TASK_MODULE")},
        )
        config = self._artifact(
            _FILE, "run-config", job.stage, {"gin_files": ", ".join(job.run.gin_files), "args": " ".join(job.args)}
        )
        model = self._artifact(_MODEL, "model", job.model_dir, {"run_mode": job.run_mode.value})
        execution = aiplatform.Execution.create(
            _JOB,
            display_name=self._job.display_name,
            metadata={"resource_name": self._job.name, "url": self._job.url, "image": job.target.image},
            credentials=aiplatform.initializer.global_config.credentials,
            **self._where,
        )
        self._associate([dataset, config, model], [execution])
        execution.assign_input_artifacts([dataset, config])
        execution.assign_output_artifacts([model])
        self._run.log_params({"lineage": model.lineage_console_uri})

    def _add_files(self, model_dir: Folder) -> None:
        """Adds the files that T5X wrote about the run, if they exist; a job that failed early has none."""
        known = {artifact.display_name for artifact in self._run.get_artifacts()}
        there = {name for name, _ in model_dir.names(CONFIG)} | {name for name, _ in model_dir.names(MODEL_INFO)}
        added = [
            self._artifact(_FILE, name, f"{model_dir.address}/{name}", {})
            for name in (CONFIG, MODEL_INFO)
            if name in there and name not in known
        ]
        if added:
            self._associate(added, [])
            for execution in self._executions():
                execution.assign_output_artifacts(added)

    def _artifact(self, schema: str, name: str, uri: str, metadata: Mapping[str, str]) -> Any:
        from google.cloud import aiplatform

        kept = {key: value for key, value in metadata.items() if value}
        return aiplatform.Artifact.create(
            schema, display_name=name, uri=uri or None, metadata=kept or None, **self._where
        )

    def _associate(self, artifacts: list[Any], executions: list[Any]) -> None:
        from google.cloud import aiplatform

        aiplatform.Context(self._run.resource_name).add_artifacts_and_executions(
            artifact_resource_names=[artifact.resource_name for artifact in artifacts],
            execution_resource_names=[execution.resource_name for execution in executions],
        )

    def _executions(self) -> list[Any]:
        """Returns the execution for the job; none if the creation of the run was interrupted."""
        return [e for e in self._run.get_executions() if e.schema_title == _JOB]


def parameters_of(program: GinProgram) -> dict[str, float | int | str]:
    """Returns the values of a config's macros in the form that experiments use: as numbers, otherwise as Gin text.

    Macros without a value, which the launcher binds, are left out.
    """
    found: dict[str, float | int | str] = {}
    for name, macro in program.macros.items():
        value = program.resolve(macro).value
        if is_required(value):
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found[name] = value if is_number or isinstance(value, str) else format_value(value, _LONGEST_PARAMETER)
    return found


def _run_name(job: SubmittedJob, experiment: str) -> str:
    """Returns the job's name, or only its unique end if the whole does not fit with the experiment's name."""
    return job.display_name[-(LONGEST_RUN - len(experiment) - 1) :].lstrip("-")


def _text_of(program: GinProgram, macro: str) -> str:
    found = program.macros.get(macro)
    value = program.resolve(found).value if found else None
    return value if isinstance(value, str) else ""
