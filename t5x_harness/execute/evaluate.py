"""The stages eval and infer: T5X's own functions on a checkpoint; without metrics, the teacher-forced loss."""

import dataclasses
import functools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin
import jax
import numpy as np
import seqio
from t5x import eval as eval_module
from t5x import infer as infer_module
from t5x import utils

from t5x_harness.execute.execution import Execution
from t5x_harness.execute.output import scalars_in
from t5x_harness.execute.prepare import PreparedRun, RunData
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.work import GOING_ON, NO_WORK, undefined_metrics, why_no_number
from t5x_harness.gin.config import GinConfig
from t5x_harness.gin.values import format_value
from t5x_harness.plan.stored_tree import StoredLayout, layout_of
from t5x_harness.resolve.datasets import DataRole, few_examples, task_features
from t5x_harness.spec import Finding, Measure, Mode, Severity
from t5x_harness.upstream.t5x import Observed, WatchedBatches, observe

LOGGERS = (seqio.PyLoggingLogger, seqio.TensorBoardLogger, seqio.JSONLogger)


def eval_stage(run: Execution, report: StageReport) -> None:
    """Evaluates an eval config by itself, otherwise the last checkpoint of a train config as an eval job would."""
    small = run.prepared(report)
    config = small.config
    with few_examples(small.data.all_tasks, small.examples):
        if config.mode is Mode.EVAL:
            role, evaluate = small.data.role("dataset_cfg"), gin.get_configurable(eval_module.evaluate)
            evaluator = config.build("inference_evaluator_cls") or seqio.Evaluator
        elif small.data.has_metrics(small.data.evaluated):
            role, evaluate = (
                small.data.evaluated,
                functools.partial(eval_module.evaluate, **_trained(run, small, "eval")),
            )
            own = config.build("inference_evaluator_cls")
            evaluator = own or functools.partial(seqio.Evaluator, logger_cls=LOGGERS)
        else:
            _evaluate_loss(small, _trained(run, small, "eval"), report)
            return
        watch = _EvaluationObserver()
        with observe(utils) as observed:
            evaluate(inference_evaluator_cls=watch(evaluator), dataset_cfg=role.dataset)
        watch.report_to(report, observed, config, small.data.tasks(role))


def _trained(run: Execution, small: PreparedRun, folder: str) -> dict[str, Any]:
    """Returns the arguments with which T5X evaluates, or infers with, the checkpoint that a train config wrote.

    Args:
      run: the run.
      small: the run as it is executed.
      folder: the name of the folder for the results.
    """
    checkpoint = run.trained_checkpoint()
    assert run.trained is not None
    # The traces of the trained model also serve these stages.
    model = small.model if run.trained.model is None else run.trained.model
    return job_on(checkpoint, model, small.partitioner, str(run.workspace / folder))


def job_on(checkpoint: str, model: Any, partitioner: Any, output: str) -> dict[str, Any]:
    """Returns the arguments with which T5X's eval and infer read a checkpoint that a train config wrote.

    A checkpoint that was written without orbax is read without it: at gs://, orbax deletes unknown files.

    Args:
      checkpoint: the checkpoint.
      model: the model.
      partitioner: the partitioner.
      output: the folder for the results.
    """
    return {
        "model": model,
        "restore_checkpoint_cfg": utils.RestoreCheckpointConfig(path=checkpoint, mode="specific"),
        "partitioner": partitioner,
        "output_dir": output,
        "use_orbax": layout_of(checkpoint) is not StoredLayout.T5X,
    }


def _evaluate_loss(run: PreparedRun, given: Mapping[str, Any], report: StageReport) -> None:
    """Evaluates the loss of a restored checkpoint on one batch, which is all that tasks without metrics allow."""
    role, partitioner, initializer = run.data.evaluated, given["partitioner"], run.shapes.initializer
    model, checkpoint, output = given["model"], given["restore_checkpoint_cfg"].path, given["output_dir"]
    restored, _ = utils.create_checkpoint_manager_and_restore(
        initializer,
        partitioner,
        utils.RestoreCheckpointConfig(path=checkpoint, mode="specific", strict=False),
        checkpoint,
        None,
        use_orbax=given["use_orbax"],
    )
    layout = partitioner.get_data_layout(role.dataset.batch_size)
    datasets = utils.get_training_eval_datasets(
        role.dataset, layout.shard_id, layout.num_shards, 1, model.FEATURE_CONVERTER_CLS
    )
    trainer = run.config.build("trainer_cls")(
        model=model,
        train_state=restored,
        partitioner=partitioner,
        train_state_axes=initializer.train_state_axes,
        eval_names=list(datasets),
        summary_dir=output,
        rng=jax.random.PRNGKey(0),
    )
    batches: list[None] = []
    trainer.eval(
        {n: WatchedBatches(d.as_numpy_iterator(), lambda _: batches.append(None)) for n, d in datasets.items()}
    )
    trainer.close()
    report.idle = f"{len(batches)} batches of {role.source} were evaluated, and no loss was written"
    report.fact("checkpoint", os.path.basename(checkpoint))
    report.fact("evaluated by", f"the teacher-forced loss: {role.source} has no metric_fns")
    for tag, steps in scalars_in(Path(output)).items():
        if tag.endswith("/loss"):
            value = list(steps.values())[-1]
            report.fact(tag.removeprefix("training_eval/"), f"{value:.4g}")
            report.measure("loss", value, of=tag.removesuffix("/loss"), step=list(steps)[-1])
            report.exercised = len(batches) * role.dataset.batch_size
            if not math.isfinite(value):
                report.find("RUN04", f"{tag} is {value}", fix="look for NaN in the restored parameters")


class _EvaluationObserver:
    """Observes which examples of each task are evaluated, and which metrics result."""

    def __init__(self) -> None:
        self._outcomes: list[tuple[Any, Mapping[str, Any]]] = []

    def __call__(self, evaluator_cls: Callable[..., seqio.Evaluator]) -> Callable[..., seqio.Evaluator]:
        """Returns the same evaluator, which now keeps the results of each evaluation."""

        def make(*args: Any, **kwargs: Any) -> seqio.Evaluator:
            evaluator = evaluator_cls(*args, **kwargs)
            inner = evaluator.evaluate

            def watched(*inputs: Any, **options: Any) -> Any:
                metrics, outputs = inner(*inputs, **options)
                self._outcomes.append((metrics, outputs))
                return metrics, outputs

            evaluator.evaluate = watched
            return evaluator

        return make

    def report_to(
        self, report: StageReport, observed: Observed, config: GinConfig, tasks: Sequence[seqio.Task]
    ) -> None:
        """Reports the checkpoints, examples and metrics that were observed, and anything that proves nothing."""
        if not observed.restored:
            _report_no_checkpoint(config, report)
            return
        report.idle = "no example was predicted or scored"
        report.exercised = observed.examples
        report.fact("checkpoint", ", ".join(map(os.path.basename, observed.restored)))
        for task, number in self._examples_of_tasks().items():
            report.fact("evaluated", f"{number} examples of {task}")
            if not number:
                report.not_checked.append(f"the metrics of {task}: none of its examples was evaluated")
        measures: list[Measure] = []
        measured: set[str] = set()
        for future, _ in self._outcomes:
            for task, metrics in (future.result() or {}).items():
                measures += _measure_task(task, metrics or {}, report)
                measured.add(task)
        for task in tasks:
            if task.name not in measured:
                why = "its evaluator left it out" if task.metric_fns else "it has no metric_fns"
                report.not_checked.append(f"the metrics of {task.name}: {why}")
        report.measures += measures
        report.add(undefined_metrics(report.stage, measures))
        report.unproved = why_no_number(measures)

    def _examples_of_tasks(self) -> Mapping[str, int]:
        """Counts the outputs of each task over all evaluations."""
        numbers: Counter[str] = Counter()
        for _, outputs in self._outcomes:
            for task, of_kinds in (outputs or {}).items():
                rows = [kind[0] if isinstance(kind, tuple) else kind for kind in of_kinds.values()]
                numbers[task] += max(map(len, rows), default=0)
        return numbers


def _report_no_checkpoint(config: GinConfig, report: StageReport) -> None:
    """Reports, at the line that names the checkpoints, that nothing was evaluated."""
    key = config.restore_key("path")
    owner = config.owner(key) if key else None
    named = f": {owner.short} = {format_value(config.written(owner), 80)}" if owner else ""
    report.find(
        NO_WORK,
        f"no checkpoint was restored and evaluated, so nothing is proved{named}",
        location=config.location(owner) if owner else None,
        fix="name a checkpoint that is left to evaluate",
        binding=owner.short if owner else None,
    )


def _measure_task(task: str, metrics: Mapping[str, Any], report: StageReport) -> list[Measure]:
    """Returns the metrics of a task that are numbers, and reports those that are not."""
    values = {name: _number(value) for name, value in metrics.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    others = [f"{name} is of type {type(metrics[name]).__name__}" for name in values if name not in numbers]
    shown = [f"{name} {value:.4g}" for name, value in numbers.items()] + others
    report.fact(f"{task} metrics", ", ".join(shown) or "none")
    if not metrics:
        report.not_checked.append(f"the metrics of {task}: its metric_fns return none")
    elif others:
        report.not_checked.append(f"what {task} measures, which is not a number: {', '.join(others)}")
    return [Measure(name, value, of=task) for name, value in numbers.items()]


def _number(value: Any) -> float | None:
    """Returns a metric as a number, whether it is Python's, NumPy's, JAX's or a ``seqio.metrics.Scalar``."""
    value = getattr(value, "value", value)
    if isinstance(value, str | bytes) or np.size(value) != 1:
        return None
    try:
        return float(np.asarray(value).item())
    except (TypeError, ValueError):
        return None


def infer_stage(run: Execution, report: StageReport) -> None:
    """Runs inference for an infer config by itself, otherwise with the last checkpoint of a train config.

    A model whose data has no inputs returns scores, because it has nothing to predict from.
    """
    small = run.prepared(report)
    trains = small.config.mode is Mode.TRAIN
    given, output = (_trained(run, small, "infer"), run.workspace / "infer") if trains else (None, run.written.local)
    inference = inference_of(small.config, small.data, given)
    with few_examples(small.data.all_tasks, small.examples), observe(utils) as observed:
        inference.infer()
    if trains:
        report.not_checked.append(GOING_ON)
    _count_predictions(output, small.data.tasks(inference.role), inference.ending, observed, report)


@dataclasses.dataclass(frozen=True)
class Inference:
    """An inference of T5X.

    Attributes:
      role: the data that it reads.
      infer: T5X's function, which takes further arguments.
      ending: the end of the name of a task's predictions.
    """

    role: DataRole
    infer: Callable[..., None]
    ending: str


def inference_of(config: GinConfig, data: RunData, trained: Mapping[str, Any] | None) -> Inference:
    """Returns the inference of an infer config, or that with a checkpoint that a train config wrote.

    Args:
      config: the config.
      data: its data.
      trained: the arguments for the checkpoint of a train config; see :func:`job_on`. None for an infer config.
    """
    if trained is None:
        role, infer = data.role("dataset_cfg"), gin.get_configurable(infer_module.infer)
        mode = config.value(config.owner_of("mode")) or "predict"
        shard, of = (config.value(config.owner_of(name)) for name in ("shard_id", "num_shards"))
        extension = config.value(config.owner_of("file_extension")) or "jsonl"
        of = 1 if of is None else of  # with 0 shards, each has all
    else:
        role = data.inferred
        features = task_features(trained["model"].FEATURE_CONVERTER_CLS, role.dataset.task_feature_lengths or ())
        mode = "score" if features and "inputs" not in features else "predict"
        shard, of, extension = 0, 1, "jsonl"
        # A user's task may read from a generator, whose position cannot be saved.
        given = {**trained, "mode": mode, "checkpoint_period": 1, "checkpoint_ds_iter": False}
        infer = functools.partial(infer_module.infer, **given)
    ending = f"{mode}.{extension}-{shard or 0:05}-of-{of:05}"
    return Inference(role, functools.partial(infer, dataset_cfg=role.dataset), ending)


def _count_predictions(
    output: Path, tasks: Sequence[seqio.Task], ending: str, observed: Observed, report: StageReport
) -> None:
    """Counts the predictions of each task, and compares them with the examples that went through the model.

    They count as work only if a checkpoint was restored for them.
    """
    if not observed.restored:
        report.idle = "no checkpoint was restored to infer with"
        return
    if not observed.examples:
        report.idle = (
            "no example went through the model: there is none, or an earlier inference into this folder is complete"
        )
        return
    report.fact("checkpoint", ", ".join(map(os.path.basename, observed.restored)))
    report.idle = (
        f"no line was written for {observed.examples} examples of {', '.join(t.name for t in tasks) or 'no task'}"
    )
    for task in tasks:
        name = f"{task.name}-{ending}"
        file = output / name
        if not (output / f"{name}.COMPLETED").exists() or not file.exists():
            report.find("INF03", f"inference left no {name} with its .COMPLETED marker", fix="see the run's log")
            continue
        lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        report.exercised += len(lines)
        report.fact(f"{task.name} {ending.partition('.')[0]}", f"{len(lines)} lines with {_keys(lines)}")
        report.measure("predictions", len(lines), "lines", of=task.name)
        if not lines:
            report.not_checked.append(f"the predictions of {task.name}: its file is empty")
    if 0 < report.exercised < observed.examples:
        message = f"{report.exercised} lines were written for {observed.examples} examples"
        fix = "let write_fn write a line for each example that it is given"
        report.add([Finding(NO_WORK, Severity.WARNING, report.stage, message, fix=fix)])


def _keys(lines: Sequence[str]) -> str:
    """Describes the keys of the first line if it is a JSON object, as T5X's own lines are."""
    try:
        return ", ".join(sorted(json.loads(lines[0]))) if lines else "nothing"
    except (TypeError, ValueError):
        return "text of an own write_fn"
