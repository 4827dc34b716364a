"""The eval stage: T5X's ``evaluate`` on a checkpoint, or the teacher-forced loss where a task has no metrics."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin
import jax
import seqio
from t5x import eval as eval_module
from t5x import utils

from t5x_harness.execute.artifacts import scalars_in
from t5x_harness.execute.prepare import Prepared
from t5x_harness.plan.stored_tree import Layout, layout_of
from t5x_harness.resolve.stage_report import StageReport

LOGGERS = (seqio.PyLoggingLogger, seqio.TensorBoardLogger, seqio.JSONLogger)


def evaluate_config(run: Prepared, report: StageReport) -> None:
    """Runs an eval config through its own gin.

    Args:
      run: of the config, its output folder bound.
      report: gets the metrics and the number of examples.

    Raises:
      Exception: what T5X raises.
    """
    watch = _Watch()
    evaluator = run.config.build("inference_evaluator_cls") or seqio.Evaluator
    dataset = run.role("dataset_cfg").dataset
    gin.get_configurable(eval_module.evaluate)(inference_evaluator_cls=watch(evaluator), dataset_cfg=dataset)
    watch.tell(report)


def evaluate_checkpoint(run: Prepared, model: Any, checkpoint: str, output: Path, report: StageReport) -> None:
    """Evaluates the checkpoint that a train config wrote, as an eval job for it would.

    One that was written without orbax is read without it: at gs://, orbax deletes what it does not know.

    Args:
      run: of a train config.
      model: as it was trained.
      checkpoint: the checkpoint's folder, as T5X is given it.
      output: folder for the results.
      report: gets the metrics and the number of examples.

    Raises:
      Exception: what T5X raises.
    """
    watch = _Watch()
    evaluator = run.config.build("inference_evaluator_cls") or functools.partial(seqio.Evaluator, logger_cls=LOGGERS)
    eval_module.evaluate(
        model=model,
        dataset_cfg=run.evaluated.dataset,
        restore_checkpoint_cfg=utils.RestoreCheckpointConfig(path=checkpoint, mode="specific"),
        partitioner=run.partitioner,
        output_dir=str(output),
        inference_evaluator_cls=watch(evaluator),
        use_orbax=layout_of(checkpoint) is not Layout.T5X,
    )
    report.fact("checkpoint", os.path.basename(checkpoint))
    watch.tell(report)


def teacher_forced(run: Prepared, model: Any, checkpoint: str, output: Path, report: StageReport) -> None:
    """Evaluates the loss of a restored checkpoint on one batch: all there is for tasks without metrics.

    Raises:
      Exception: what T5X raises.
    """
    role, partitioner, shapes = run.evaluated, run.partitioner, run.shapes
    restored, _ = utils.create_checkpoint_manager_and_restore(
        shapes.initializer,
        partitioner,
        utils.RestoreCheckpointConfig(path=checkpoint, mode="specific", strict=False),
        checkpoint,
        None,
        use_orbax=layout_of(checkpoint) is not Layout.T5X,
    )
    layout = partitioner.get_data_layout(role.dataset.batch_size)
    datasets = utils.get_training_eval_datasets(
        role.dataset, layout.shard_id, layout.num_shards, 1, model.FEATURE_CONVERTER_CLS
    )
    trainer = run.config.build("trainer_cls")(
        model=model,
        train_state=restored,
        partitioner=partitioner,
        train_state_axes=shapes.initializer.train_state_axes,
        eval_names=list(datasets),
        summary_dir=str(output),
        rng=jax.random.PRNGKey(0),
    )
    trainer.eval({name: dataset.as_numpy_iterator() for name, dataset in datasets.items()})
    trainer.close()
    report.fact("checkpoint", os.path.basename(checkpoint))
    report.fact("evaluated by", f"the teacher-forced loss: {role.source} has no metric_fns")
    for tag, steps in scalars_in(output).items():
        if tag.endswith("/loss"):
            value = list(steps.values())[-1]
            report.fact(tag.removeprefix("training_eval/"), f"{value:.4g}")
            report.measure("loss", value, of=tag.removesuffix("/loss"), step=list(steps)[-1])
            report.exercised += role.dataset.batch_size
            if not math.isfinite(value):
                report.find("RUN04", f"{tag} is {value}", fix="look for NaN in the restored parameters")


class _Watch:
    """Sees the evaluators that T5X makes: how many examples they hold and what they measure."""

    def __init__(self) -> None:
        self._evaluators: list[seqio.Evaluator] = []
        self._metrics: list[Any] = []

    def __call__(self, evaluator_cls: Callable[..., seqio.Evaluator]) -> Callable[..., seqio.Evaluator]:
        def make(*args: Any, **kwargs: Any) -> seqio.Evaluator:
            evaluator = evaluator_cls(*args, **kwargs)
            inner = evaluator.evaluate

            def watched(*inputs: Any, **options: Any) -> Any:
                metrics, outputs = inner(*inputs, **options)
                self._metrics.append(metrics)
                return metrics, outputs

            evaluator.evaluate = watched
            self._evaluators.append(evaluator)
            return evaluator

        return make

    def tell(self, report: StageReport) -> None:
        """Puts the metrics and the number of examples into a report."""
        for evaluator in self._evaluators:
            for task in evaluator.eval_tasks:
                number = int(evaluator.cached_task_datasets[task.name].cardinality())
                report.exercised += number
                report.fact("evaluated", f"{number} examples of {task.name}")
        for future in self._metrics:
            for task, metrics in (future.result() or {}).items():
                numbers = _numbers(metrics)
                shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
                report.fact(f"{task} metrics", shown or "none is a number")
                for name, value in numbers.items():
                    report.measure(name, value, of=task)


def _numbers(metrics: Any) -> dict[str, float]:
    """Returns the metrics that are numbers, by name."""
    values = {name: getattr(value, "value", value) for name, value in (metrics or {}).items()}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
