"""The part of a trainer that does not depend on what a step is."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import clu.metrics
import clu.values
import flax.core
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from t5x import partitioning, utils
from t5x._driver import metrics_manager
from t5x._driver.gradients import merge_metrics
from t5x._driver.metrics_manager import MetricsManager
from t5x._driver.protocols import (
    ArrayMapFuture,
    Batch,
    MetricMapType,
    PartitionedEvalCallable,
    PartitionedTrainCallable,
)

# A TensorBoard folder per eval task is named after it; longer names meet the file system's limit.
_LONGEST_EVAL_NAME = 113
_LOG_SECONDS = 10


class PreemptionError(Exception):
    """The machine is about to go away: a checkpoint is saved before this ends the training."""


class BaseTrainer(abc.ABC):
    """Runs train and eval steps, whatever a step is.

    Threads write the metrics, so use it as a context manager or call ``close()``.

    Attributes:
        stop_training: set to True to leave the training loop at the next chance.
        train_metrics_manager: writes to ``train``.
        eval_metrics_managers: by eval name; each writes to ``training_eval/NAME``.
    """

    def __init__(
        self,
        model: Any,
        train_state: Any,
        partitioner: Any,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: Any,
        rng: jax.Array,
    ):
        """Takes over the train state.

        Args:
            model: a ``t5x.models.BaseModel``.
            train_state: parameters and optimizer state, laid out on the mesh.
            partitioner: a ``t5x.partitioning.BasePartitioner``.
            eval_names: the names that ``eval`` will be given.
            summary_dir: parent folder of the TensorBoard folders; None writes to the log only.
            train_state_axes: a tree like ``train_state``, of partition specs.
            rng: the key that every step's key is made from.
        """
        self._model = model
        self._partitioner = partitioner
        self._train_state_axes = train_state_axes
        self._base_rng = rng
        self._train_state_lock = threading.RLock()
        self._train_state = train_state
        self._compiled_train_step: PartitionedTrainCallable | None = None
        self._compiled_eval_steps: dict[str, PartitionedEvalCallable] = {}
        self._compiled_eval_step_cache: dict[Any, PartitionedEvalCallable] = {}
        self._created_at = metrics_manager.now()
        self.stop_training = False
        self.train_metrics_manager = MetricsManager("train", summary_dir=summary_dir)
        self.eval_metrics_managers = {
            name: MetricsManager(f"training_eval/{name[:_LONGEST_EVAL_NAME]}", summary_dir=summary_dir)
            for name in eval_names
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finishes writing the metrics."""
        for manager in (self.train_metrics_manager, *self.eval_metrics_managers.values()):
            manager.close()

    def _get_step_rng(self, step: Any) -> jax.Array:
        """Returns the key of ``step``: the same whether or not the run was interrupted before it."""
        return jax.random.fold_in(self._base_rng, step)

    @property
    def train_state(self) -> Any:
        """The newest train state; during ``train`` other threads wait for it."""
        with self._train_state_lock:
            return self._train_state

    @train_state.setter
    def train_state(self, train_state: Any) -> None:
        with self._train_state_lock:
            self._train_state = train_state

    def train(self, batch_iter: Iterator[Batch], num_steps: int, start_step: int | None = None) -> ArrayMapFuture:
        """Takes ``num_steps`` steps and writes their merged metrics at the last one.

        Args:
            batch_iter: yields global batches, features by name.
            num_steps: how many to take.
            start_step: the step of the train state; given, it need not be fetched from the device.

        Returns:
            The future of the summarized metrics.
        """
        step_fn = self._compiled_train_step or self._partitioned_train_step
        merged: MetricMapType | None = None
        with self._train_state_lock:
            state = self._train_state
            first = int(state.step if start_step is None else start_step)
            last = first + num_steps
            self.train_metrics_manager.start_duration_timer(block_on=state)
            for step in range(first, last):
                logging.log_every_n_seconds(logging.INFO, "Training at step %d.", _LOG_SECONDS, step)
                with jax.profiler.StepTraceAnnotation("train", step_num=step):
                    state, metrics = step_fn(state, next(batch_iter))
                    merged = metrics if merged is None else merge_metrics(merged, metrics)
            self.train_state = state
        summary = dict(merged or {})
        if summary:
            uptime = np.float32(metrics_manager.now() - self._created_at)
            summary["timing/uptime"] = clu.metrics.LastValue(uptime, np.int32(1))
        return self.train_metrics_manager.write_metrics_summary(summary, last, num_steps)

    def compile_train(self, batch: Batch) -> None:
        """Compiles the train step now, instead of at the first step, for batches of ``batch``'s shapes and dtypes."""
        began = metrics_manager.now()
        self._compiled_train_step = self._partitioner.compile(self._partitioned_train_step, self.train_state, batch)
        seconds = metrics_manager.now() - began
        self.train_metrics_manager.write_scalar("timing/compilation_seconds", seconds, self.train_state.step)

    def _on_mesh(self, batch: Any) -> Any:
        """Joins the processes' shares of an eval batch to a global one; one process has all of it already."""
        if jax.process_count() == 1:
            return batch
        return partitioning.host_local_array_to_global_array(
            batch, self._partitioner.mesh, self._partitioner.data_partition_spec
        )

    def eval(self, batch_iters: Mapping[str, Iterator[Batch]]) -> Mapping[str, Mapping[str, clu.values.Value]]:
        """Runs through every iterator and writes its merged metrics at the train state's step.

        Args:
            batch_iters: by eval name; each yields this process's share of the batches.

        Returns:
            Summarized value by tag, by eval name.
        """
        state = self.train_state
        summaries = {}
        for name, batches in batch_iters.items():
            logging.info("Evaluating %s.", name)
            step_fn = self._compiled_eval_steps.get(name, self._partitioned_eval_step)
            manager = self.eval_metrics_managers[name]
            merged: MetricMapType | None = None
            num_steps = 0
            manager.start_duration_timer(block_on=state)
            for num_steps, batch in enumerate(batches, start=1):
                self._assert_in_step(num_steps, name)
                metrics = step_fn(state, self._on_mesh(batch))
                merged = metrics if merged is None else merge_metrics(merged, metrics)
            self._assert_in_step(-1, name)
            summaries[name] = manager.write_metrics_summary(merged or {}, state.step, num_steps)
        return {name: summary.result() for name, summary in summaries.items()}

    def _assert_in_step(self, num_steps: int, name: str) -> None:
        """Fails when the processes' shards have different numbers of batches, where they would hang otherwise."""
        if jax.process_count() > 1:
            utils.multihost_assert_equal(
                jnp.array(num_steps), f"the processes have different numbers of batches of {name!r}; is a shard empty?"
            )

    def compile_eval(self, batches: Mapping[str, Batch]) -> None:
        """Compiles the eval step now, once for all names whose batches have the same shapes and dtypes.

        Args:
            batches: an example batch by eval name; its values do not matter.
        """
        for name, batch in batches.items():
            began = metrics_manager.now()
            layout = flax.core.FrozenDict(jax.eval_shape(lambda batch=batch: batch))
            if layout not in self._compiled_eval_step_cache:
                self._compiled_eval_step_cache[layout] = self._partitioner.compile(
                    self._partitioned_eval_step, self.train_state, self._on_mesh(batch)
                )
            self._compiled_eval_steps[name] = self._compiled_eval_step_cache[layout]
            seconds = metrics_manager.now() - began
            self.eval_metrics_managers[name].write_scalar("timing/compilation_seconds", seconds, self.train_state.step)

    @property
    @abc.abstractmethod
    def _partitioned_train_step(self) -> PartitionedTrainCallable:
        """``(train_state, batch) -> (train_state, metrics)`` over the mesh."""

    @property
    @abc.abstractmethod
    def _partitioned_eval_step(self) -> PartitionedEvalCallable:
        """``(train_state, batch) -> metrics`` over the mesh."""
