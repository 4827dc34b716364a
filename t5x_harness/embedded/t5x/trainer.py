"""The trainer: owns the train state, runs compiled steps on it and hands the metrics on.

``train_cls`` of a config is usually :class:`Trainer`; other training schemes derive from it, or from
:class:`BaseTrainer`, and replace ``_partitioned_train_step`` and ``_partitioned_eval_step``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec
from t5x._driver.actions import ActionMapType, ActionMode, BaseAction, EarlyStoppingAction, TerminateOnNanAction
from t5x._driver.base_trainer import BaseTrainer, PreemptionError
from t5x._driver.gradients import accumulate_grads_microbatched, apply_grads, eval_step, merge_metrics
from t5x._driver.metrics_manager import MetricsManager
from t5x._driver.protocols import (
    ArrayMapFuture,
    BaseTrainerConstructor,
    Batch,
    LearningRateCallable,
    MetricMapType,
    MetricValueMapFuture,
    MetricValueMapType,
    PartitionedEvalCallable,
    PartitionedTrainCallable,
    SummarizeMetricsCallable,
    TimeFuture,
)
from t5x._driver.weight_metrics import WeightMetricsComputer
from t5x._public import publish

__all__ = [
    "ActionMapType",
    "ActionMode",
    "ArrayMapFuture",
    "BaseAction",
    "BaseTrainer",
    "BaseTrainerConstructor",
    "EarlyStoppingAction",
    "LearningRateCallable",
    "MetricMapType",
    "MetricValueMapFuture",
    "MetricValueMapType",
    "MetricsManager",
    "PartitionedEvalCallable",
    "PartitionedTrainCallable",
    "PreemptionError",
    "SummarizeMetricsCallable",
    "TerminateOnNanAction",
    "TimeFuture",
    "Trainer",
    "WeightMetricsComputer",
    "accumulate_grads_microbatched",
    "apply_grads",
    "eval_step",
    "merge_metrics",
    "train_with_lr",
]


def train_with_lr(
    train_state: Any,
    batch: Batch,
    learning_rate: jax.Array,
    dropout_rng: jax.Array,
    model: Any,
    num_microbatches: int | None,
    weight_metrics_computer: WeightMetricsComputer | None = None,
    data_partition_spec: PartitionSpec = PartitionSpec("data"),  # noqa: B008 (T5X's default, and immutable)
) -> tuple[Any, MetricMapType]:
    """Takes one step: gradients over the batch, then the optimizer; see the two functions that it calls.

    Returns:
        The train state after the step, and the step's metrics.
    """
    grads, metrics, mutables = accumulate_grads_microbatched(
        model, train_state, batch, dropout_rng, num_microbatches, data_partition_spec
    )
    extra = {"flax_mutables": mutables} if mutables else None
    return apply_grads(train_state, grads, metrics, learning_rate, weight_metrics_computer, other_state_variables=extra)


class Trainer(BaseTrainer):
    """Trains a model with its loss, a learning rate schedule and, if asked for, microbatches."""

    def __init__(
        self,
        model: Any,
        train_state: Any,
        partitioner: Any,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: Any,
        rng: jax.Array,
        learning_rate_fn: LearningRateCallable,
        num_microbatches: int | None,
        weight_metrics_computer: WeightMetricsComputer | None = None,
    ):
        """Takes over the train state.

        Args:
            model: what to train.
            train_state: parameters and optimizer state, laid out on the mesh.
            partitioner: laid them out.
            eval_names: the names that ``eval`` will be given.
            summary_dir: parent folder of the TensorBoard folders; None writes to the log only.
            train_state_axes: a tree like ``train_state``, of partition specs.
            rng: the key that every step's key is made from.
            learning_rate_fn: the learning rate at a step.
            num_microbatches: into how many parts to cut each batch to save memory; None does not cut.
            weight_metrics_computer: adds metrics about the weights to every step.
        """
        self._learning_rate_fn = learning_rate_fn
        self._num_microbatches = num_microbatches
        self._weight_metrics_computer = weight_metrics_computer
        super().__init__(model, train_state, partitioner, eval_names, summary_dir, train_state_axes, rng)

    @functools.cached_property
    def _partitioned_train_step(self) -> PartitionedTrainCallable:
        data_spec = self._partitioner.data_partition_spec

        def train_step(train_state: Any, batch: Batch) -> tuple[Any, MetricMapType]:
            return train_with_lr(
                train_state,
                batch,
                learning_rate=self._learning_rate_fn(train_state.step),
                dropout_rng=self._get_step_rng(train_state.step),
                model=self._model,
                num_microbatches=self._num_microbatches,
                weight_metrics_computer=self._weight_metrics_computer,
                data_partition_spec=data_spec,
            )

        state_axes = self._train_state_axes
        return self._partitioner.partition(
            train_step,
            in_axis_resources=(state_axes, data_spec),
            out_axis_resources=(state_axes, None),
            donate_argnums=(0,),
        )

    @functools.cached_property
    def _partitioned_eval_step(self) -> PartitionedEvalCallable:
        def one_eval_step(train_state: Any, batch: Any) -> MetricMapType:
            return eval_step(self._model, train_state, batch)

        return self._partitioner.partition(
            one_eval_step,
            in_axis_resources=(self._train_state_axes, self._partitioner.data_partition_spec),
            out_axis_resources=None,
        )


publish(__name__)
