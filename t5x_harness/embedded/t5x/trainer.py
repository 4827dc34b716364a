"""The trainer: owns the train state, runs compiled steps on it and passes the metrics on.

``train_cls`` of a config is usually ``Trainer``; other training schemes derive from it, or from
``BaseTrainer``, and replace ``_partitioned_train_step`` and ``_partitioned_eval_step``.
"""

from __future__ import annotations

import abc
import enum
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import clu.metrics
import clu.values
import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import typing_extensions
from absl import logging
from clu import asynclib
from jax.sharding import PartitionSpec
from t5x import checkpoints, models, partitioning, utils
from t5x import metrics as metrics_lib
from t5x._errors import ConfigError
from t5x._lazy import metric_writers
from t5x.train_state import TrainState

Array = np.ndarray | jax.Array
Rng = jax.Array
Batch = Mapping[str, Any]
BatchType = Mapping[str, np.ndarray]
BatchSpec = Mapping[str, jax.ShapeDtypeStruct]
MetricMapType = MutableMapping[str, clu.metrics.Metric]
MetricValueMapType = Mapping[str, clu.values.Value]
MutableMetricMapType = dict[str, clu.metrics.Metric]
MetricMapSpec = Mapping[str, jax.ShapeDtypeStruct]
ModelWeights = Any
PyTree = Any
_Scalar = int | float | np.number | np.ndarray | jax.Array
FlaxMutables = flax.core.FrozenDict
_Accumulated = tuple[PyTree, MetricMapType, FlaxMutables | None]  # gradients, metrics, mutables


class ArrayMapFuture(typing_extensions.Protocol):
    """A mapping of arrays that is still being computed."""

    def result(self) -> Mapping[str, Any]:
        """Waits for it and returns it."""


class MetricValueMapFuture(typing_extensions.Protocol):
    """Summarized metrics that are still being computed."""

    def result(self) -> Mapping[str, clu.values.Value]:
        """Waits for them and returns value by tag."""


class TimeFuture(typing_extensions.Protocol):
    """A moment or duration in seconds that is still being measured."""

    def result(self) -> float:
        """Waits for it and returns it."""


class LearningRateCallable(typing_extensions.Protocol):
    """A learning rate schedule."""

    def __call__(self, step: jax.Array) -> jax.Array:
        """Returns the learning rate (a scalar) at ``step``."""


class SummarizeMetricsCallable(typing_extensions.Protocol):
    """Converts accumulated metrics to the values that are written."""

    def __call__(self, metrics: MetricMapType, duration: float, num_steps: int) -> Mapping[str, Any]:
        """Returns the summary of ``metrics``, merged over ``num_steps`` steps that took ``duration`` seconds."""


class PartitionedTrainCallable(typing_extensions.Protocol):
    """One train step, partitioned over the mesh."""

    def __call__(self, train_state: TrainState, batch: Batch) -> tuple[TrainState, MetricMapType]:
        """Returns the next train state and the step's metrics."""


class PartitionedEvalCallable(typing_extensions.Protocol):
    """One eval step, partitioned over the mesh."""

    def __call__(self, train_state: TrainState, batch: Batch) -> MetricMapType:
        """Returns the step's metrics."""


class BaseTrainerConstructor(Protocol):
    """The signature of ``trainer_cls`` of ``train``."""

    def __call__(
        self,
        model: models.BaseModel,
        train_state: TrainState,
        partitioner: partitioning.BasePartitioner,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: TrainState,
        rng: jax.Array,
    ) -> BaseTrainer:
        """Returns a trainer; the arguments are those of its constructor."""


def _rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(x)))


def _largest(x: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(x))


class WeightMetricsComputer:
    """Computes metrics of every parameter after each step; given to a trainer as ``weight_metrics_computer``."""

    def compute_metrics(
        self, gradients: PyTree, old_train_state: TrainState, new_train_state: TrainState
    ) -> MutableMapping[str, clu.metrics.Metric]:
        """Compares the weights before and after a step.

        Returns:
            Metrics averaged per step.  Tags are ``weight_rms``, ``weight_gradient_rms``, ``weight_update_rms``,
            ``weight_update_divided_by_weight_rms`` and ``weight_max``, each followed by ``/`` and the parameter's path,
            and ``weight_gradient_norm`` over all gradients together.
        """
        old, new = old_train_state.params, new_train_state.params
        update = jax.tree.map(jnp.subtract, new, old)
        measured: list[tuple[str, Callable[[jax.Array], jax.Array], Any]] = [
            ("weight_rms", _rms, new),
            ("weight_gradient_rms", _rms, gradients),
            ("weight_update_rms", _rms, update),
            ("weight_update_divided_by_weight_rms", _rms, jax.tree.map(jnp.divide, update, old)),
            ("weight_max", _largest, new),
        ]
        values = {
            f"{tag}/{path}": measure(leaf)
            for tag, measure, tree in measured
            for path, leaf in utils.flatten_dict_string_keys(tree).items()
        }
        squares = jnp.array([jnp.vdot(g, g) for g in jax.tree.leaves(gradients)])
        values["weight_gradient_norm"] = jnp.sqrt(jnp.sum(squares))
        return {tag: metrics_lib.AveragePerStep.from_model_output(value) for tag, value in values.items()}


def _time() -> float:
    """Returns the wall clock in seconds; tests replace it."""
    return time.time()


def _wait_for(arrays: PyTree) -> None:
    """Blocks until ``arrays`` (a pytree) are computed; a buffer that was donated meanwhile must have been computed."""
    try:
        jax.block_until_ready(arrays)
    except RuntimeError as error:
        if "deleted or donated buffer" not in str(error):
            raise


class _AsyncTimer:
    """Measures the time between two moments on the device without blocking the thread that dispatches to it.

    One worker takes the readings in the order of the requests.
    """

    def __init__(self) -> None:
        self._worker = asynclib.Pool(thread_name_prefix="t5x-stopwatch", max_workers=1)
        self._start_future: TimeFuture | None = None

    def _reading(self, arrays: PyTree) -> TimeFuture:
        def read() -> float:
            _wait_for(arrays)
            return _time()

        return self._worker(read)()

    def start(self, block_on: PyTree = ()) -> None:
        """Starts as soon as ``block_on`` (a pytree of arrays) is computed."""
        self._start_future = self._reading(block_on)

    def stop(self, block_on: PyTree = ()) -> TimeFuture:
        """Returns the future of the seconds from the last start until ``block_on`` is computed."""
        if self._start_future is None:
            raise ValueError("a stopwatch was stopped that had not been started: call start_duration_timer() first")
        started, self._start_future = self._start_future, None
        stopped = self._reading(block_on)
        return self._worker(lambda: stopped.result() - started.result())()

    def close(self) -> None:
        """Waits for the pending readings."""
        self._worker.close()


class MetricsManager:
    """Writes the metrics of one collection, ``name``, such as ``train`` or ``training_eval/my_task``.

    Only process 0 writes: TensorBoard events, in the sub-folder ``name`` of ``summary_dir``, or the log alone if that
    is None. Scalars can be written from any thread; accumulated metrics are fetched, summarized and written by a thread
    of its own, in the order of the calls.  ``close()`` waits for pending writes.

    Attributes:
        summary_dir: the folder of the TensorBoard events, or None if there is no folder.
    """

    def __init__(self, name: str, summary_dir: str | None = None):
        self.summary_dir = os.path.join(summary_dir, name) if summary_dir else None
        self._writer: metric_writers.MetricWriter | None
        if jax.process_index() == 0:
            self._writer = metric_writers.create_default_writer(summary_dir, collection=name, asynchronous=True)
        else:
            self._writer = metric_writers.MultiWriter([])
        self._one_writer_at_a_time = threading.Lock()
        self._summarizer = asynclib.Pool(thread_name_prefix="t5x-metrics", max_workers=1)
        self._duration_timer = _AsyncTimer()

    def __del__(self) -> None:
        self.close()

    @property
    def summary_writer(self) -> metric_writers.MetricWriter:
        """The open ``clu`` writer; a ValueError once the manager is closed."""
        if self._writer is None:
            raise ValueError(f"the metrics manager of {self.summary_dir!r} is closed")
        return self._writer

    def write_scalar(self, key: str, val: _Scalar, step: jax.Array | int) -> None:
        """Writes one scalar under the tag ``key`` at ``step`` (an int or a replicated array)."""
        self.write_scalars(step, {key: val})

    def write_scalars(self, step: jax.Array | int, scalars: Mapping[str, _Scalar]) -> None:
        """Writes ``scalars`` (value by tag) at ``step`` (an int or a replicated array)."""
        step = int(checkpoints.get_local_data(step))
        with self._one_writer_at_a_time:
            self.summary_writer.write_scalars(step, scalars)

    def start_duration_timer(self, block_on: PyTree = ()) -> None:
        """Starts the clock of the next summary once ``block_on`` (a pytree of arrays) is computed."""
        self._duration_timer.start(block_on)

    def write_metrics_summary(
        self, metrics: MetricMapType, step: jax.Array | int, num_steps: int
    ) -> MetricValueMapFuture:
        """Summarizes metrics that were merged over ``num_steps`` steps, and writes and returns them, at ``step``.

        The time-based ones get the time from ``start_duration_timer`` until ``metrics`` are computed, which follows the
        device closely although steps are dispatched ahead of it.
        """
        step = int(checkpoints.get_local_data(step))
        duration = self._duration_timer.stop(block_on=metrics)

        @self._summarizer
        def summarize() -> dict[str, clu.values.Value]:
            # Numpy from here on: a computation in this thread could otherwise wait on the one that trains.
            on_host = jax.device_get(metrics)
            timed = metrics_lib.set_time_metrics_duration(on_host, duration.result())
            complete = metrics_lib.set_step_metrics_num_steps(timed, num_steps)
            summary = {tag: metric.compute_value() for tag, metric in complete.items()}
            with self._one_writer_at_a_time:
                metric_writers.write_values(self.summary_writer, step, summary)
            return summary

        return summarize()

    def flush(self) -> None:
        """Waits until all pending writes are on disk; raises exceptions of the background thread."""
        try:
            self._summarizer.join()
        finally:
            if self._writer is not None:
                self._writer.flush()

    def close(self) -> None:
        """Finishes writing and closes the files; may be called again."""
        if getattr(self, "_writer", None) is None:
            return
        try:
            self._summarizer.close()
        finally:
            try:
                self._duration_timer.close()
            finally:
                self.summary_writer.close()
                self._writer = None


# Each eval task has a TensorBoard folder with its name; longer names exceed the file system's limit.
_LONGEST_EVAL_NAME = 113
_LOG_SECONDS = 10


class PreemptionError(Exception):
    """The machine is about to be preempted: a checkpoint is saved before this ends the training."""


class BaseTrainer(abc.ABC):
    """Runs train and eval steps, which subclasses define.

    It takes over ``train_state``, which ``partitioner`` laid out on the mesh; ``train_state_axes`` is a tree like it,
    of partition specs. ``eval_names`` are the names that ``eval`` will be given, ``summary_dir`` the parent folder of
    the TensorBoard folders (None writes to the log only), and every step's key is made from ``rng``.

    Threads write the metrics, so use it as a context manager or call ``close()``.

    Attributes:
        stop_training: set it to True to leave the training loop after the current step.
        train_metrics_manager: writes to ``train``.
        eval_metrics_managers: by eval name; each writes to ``training_eval/NAME``.
    """

    def __init__(
        self,
        model: models.BaseModel,
        train_state: TrainState,
        partitioner: partitioning.BasePartitioner,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: TrainState,
        rng: jax.Array,
    ):
        self._model = model
        self._partitioner = partitioner
        self._train_state_axes = train_state_axes
        self._base_rng = rng
        self._train_state_lock = threading.RLock()
        self._train_state = train_state
        self._compiled_train_step: PartitionedTrainCallable | None = None
        self._compiled_eval_steps: dict[str, PartitionedEvalCallable] = {}
        self._compiled_eval_step_cache: dict[flax.core.FrozenDict, PartitionedEvalCallable] = {}
        self._created_at = _time()
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

    def _get_step_rng(self, step: jax.Array | int) -> jax.Array:
        """Returns the key of ``step``, which is the same whether or not the run was interrupted before it."""
        return jax.random.fold_in(self._base_rng, step)

    @property
    def train_state(self) -> TrainState:
        """The newest train state; during ``train``, other threads wait for it."""
        with self._train_state_lock:
            return self._train_state

    @train_state.setter
    def train_state(self, train_state: TrainState) -> None:
        with self._train_state_lock:
            self._train_state = train_state

    def train(self, batch_iter: Iterator[Batch], num_steps: int, start_step: int | None = None) -> ArrayMapFuture:
        """Takes ``num_steps`` steps on global batches, and writes and returns their merged metrics at the last one.

        If ``start_step``, the step of the train state, is given, it need not be fetched from the device.
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
            uptime = np.float32(_time() - self._created_at)
            summary["timing/uptime"] = clu.metrics.LastValue(uptime, np.int32(1))
        return self.train_metrics_manager.write_metrics_summary(summary, last, num_steps)

    def compile_train(self, batch: Batch) -> None:
        """Compiles the train step now, instead of at the first step, for batches of ``batch``'s shapes and dtypes."""
        began = _time()
        self._compiled_train_step = self._partitioner.compile(self._partitioned_train_step, self.train_state, batch)
        seconds = _time() - began
        self.train_metrics_manager.write_scalar("timing/compilation_seconds", seconds, self.train_state.step)

    def _on_mesh(self, batch: Batch) -> Batch:
        """Joins the processes' parts of an eval batch into a global batch; a single process has all of it already."""
        if jax.process_count() == 1:
            return batch
        return partitioning.host_local_array_to_global_array(
            batch, self._partitioner.mesh, self._partitioner.data_partition_spec
        )

    def eval(self, batch_iters: Mapping[str, Iterator[Batch]]) -> Mapping[str, Mapping[str, clu.values.Value]]:
        """Runs through this process's batches by eval name, and writes and returns their merged metrics, by tag."""
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
        """Raises an error if the processes' shards have different numbers of batches, which would make them hang."""
        if jax.process_count() > 1:
            utils.multihost_assert_equal(
                jnp.array(num_steps), f"the processes have different numbers of batches of {name!r}; is a shard empty?"
            )

    def compile_eval(self, batches: Mapping[str, Batch]) -> None:
        """Compiles the eval step now, once for all names whose example batches have the same shapes and dtypes."""
        for name, batch in batches.items():
            began = _time()
            layout = flax.core.FrozenDict(jax.eval_shape(lambda batch=batch: batch))
            if layout not in self._compiled_eval_step_cache:
                self._compiled_eval_step_cache[layout] = self._partitioner.compile(
                    self._partitioned_eval_step, self.train_state, self._on_mesh(batch)
                )
            self._compiled_eval_steps[name] = self._compiled_eval_step_cache[layout]
            seconds = _time() - began
            self.eval_metrics_managers[name].write_scalar("timing/compilation_seconds", seconds, self.train_state.step)

    @property
    @abc.abstractmethod
    def _partitioned_train_step(self) -> PartitionedTrainCallable:
        """``(train_state, batch) -> (train_state, metrics)`` over the mesh."""

    @property
    @abc.abstractmethod
    def _partitioned_eval_step(self) -> PartitionedEvalCallable:
        """``(train_state, batch) -> metrics`` over the mesh."""


@jax.jit
def _merge_metrics(left: PyTree, right: PyTree) -> PyTree:
    return jax.tree.map(lambda one, other: one.merge(other), left, right, is_leaf=metrics_lib.is_metric_obj)


def merge_metrics(a: PyTree, b: PyTree) -> PyTree:
    """Merges two trees of metrics of the same structure, metric by metric, in one compiled call."""
    return _merge_metrics(jax.tree.map(checkpoints.get_local_data, a), jax.tree.map(checkpoints.get_local_data, b))


def _microbatch_size(batch: Batch, num_microbatches: int) -> int:
    batch_size = next(iter(batch.values())).shape[0]
    size, rest = divmod(batch_size, num_microbatches)
    if rest:
        raise ConfigError(
            f"trainer.Trainer.num_microbatches ({num_microbatches}) does not divide the batch size ({batch_size}): "
            f"{rest} examples would be left over"
        )
    logging.info("Accumulating gradients over %d microbatches of %d examples.", num_microbatches, size)
    return int(size)


def accumulate_grads_microbatched(
    model: models.BaseModel,
    train_state: TrainState,
    batch: Batch,
    dropout_rng: jax.Array,
    num_microbatches: int | None,
    data_partition_spec: PartitionSpec = PartitionSpec("data"),  # noqa: B008 (T5X's default, and immutable)
) -> _Accumulated:
    """Computes the gradients of ``model.loss_fn`` over ``batch``, all at once or one microbatch after the other.

    If the train state has Flax mutables, they are the fourth argument of ``loss_fn``, and it returns metrics and
    mutables. The batch is cut into ``num_microbatches`` equal parts; None, 0 and 1 leave it whole.

    Returns:
        The summed gradients (a tree like the parameters), the merged metrics, and the new mutables or None.

    Raises:
        ConfigError: the batch cannot be cut into equal parts.
    """
    mutables = train_state.flax_mutables or None
    loss_and_grad = jax.value_and_grad(model.loss_fn, has_aux=True)

    def gradients_of(part: Batch, rng: jax.Array, mutables: FlaxMutables | None) -> _Accumulated:
        if mutables is None:
            (_, metrics), grads = loss_and_grad(train_state.params, part, rng)
            return grads, metrics, None
        (_, (metrics, mutables)), grads = loss_and_grad(train_state.params, part, rng, mutables)
        return grads, metrics, mutables

    if num_microbatches is None or num_microbatches <= 1:
        return gradients_of(batch, dropout_rng, mutables)

    size = _microbatch_size(batch, num_microbatches)
    # T5X uses one key for all microbatches of a step; the recorded losses depend on it.
    microbatch_rng = jax.random.split(dropout_rng)[1]

    def microbatch(index: jax.Array | int) -> Batch:
        return {
            # [size, ...] of [batch, ...]
            name: partitioning.with_sharding_constraint(
                jax.lax.dynamic_slice_in_dim(feature, index * size, size), data_partition_spec
            )
            for name, feature in batch.items()
        }

    def add_microbatch(carry: _Accumulated, index: jax.Array) -> tuple[_Accumulated, None]:
        total, merged, mutables = carry
        grads, metrics, mutables = gradients_of(microbatch(index), microbatch_rng, mutables)
        return (jax.tree.map(jnp.add, total, grads), merge_metrics(merged, metrics), mutables), None

    # Metrics begin as zeros and are merged in the carry, as in T5X: the program is the same for any number of parts.
    _, shapes, _ = jax.eval_shape(lambda: gradients_of(microbatch(0), microbatch_rng, mutables))
    zeros = jax.tree.map(metrics_lib.shape_obj_to_defined_obj, shapes, is_leaf=metrics_lib.is_metric_obj)
    nothing = jax.tree.map(lambda param: jnp.zeros(param.shape, jnp.float32), train_state.params)
    carry, _ = jax.lax.scan(add_microbatch, (nothing, zeros, mutables), jnp.arange(num_microbatches))
    return carry


def apply_grads(
    train_state: TrainState,
    grad_accum: PyTree,
    metrics: MetricMapType,
    learning_rate: jax.Array,
    weight_metrics_computer: WeightMetricsComputer | None,
    other_state_variables: Mapping[str, Any] | None = None,
) -> tuple[TrainState, MetricMapType]:
    """Applies the gradients ``grad_accum``, a tree like the parameters, with the optimizer.

    ``other_state_variables`` are further keyword arguments of ``train_state.apply_gradient``, such as
    ``flax_mutables``.

    Returns:
        The train state after the step, and ``metrics`` with the learning rate and the weights' metrics.
    """
    stepped = train_state.apply_gradient(grad_accum, learning_rate=learning_rate, **(other_state_variables or {}))
    rate = jnp.asarray([learning_rate])
    metrics["learning_rate"] = clu.metrics.Average.from_model_output(rate)
    metrics["learning_rate/current"] = clu.metrics.LastValue.from_model_output(rate)
    if weight_metrics_computer is not None:
        metrics.update(weight_metrics_computer.compute_metrics(grad_accum, train_state, stepped))
    return stepped, metrics


def eval_step(model: models.BaseModel, train_state: TrainState, batch: Batch) -> MetricMapType:
    """Returns the metrics of ``model.eval_fn`` on one batch; Flax mutables, if any, are its third argument."""
    mutables = (train_state.flax_mutables,) if train_state.flax_mutables else ()
    _, metrics = model.eval_fn(train_state.params, batch, *mutables)
    return metrics


def train_with_lr(
    train_state: TrainState,
    batch: Batch,
    learning_rate: jax.Array,
    dropout_rng: jax.Array,
    model: models.BaseModel,
    num_microbatches: int | None,
    weight_metrics_computer: WeightMetricsComputer | None = None,
    data_partition_spec: PartitionSpec = PartitionSpec("data"),  # noqa: B008 (T5X's default, and immutable)
) -> tuple[TrainState, MetricMapType]:
    """Takes one step: gradients over the batch, then the optimizer; see the two functions that it calls."""
    grads, metrics, mutables = accumulate_grads_microbatched(
        model, train_state, batch, dropout_rng, num_microbatches, data_partition_spec
    )
    extra = {"flax_mutables": mutables} if mutables else None
    return apply_grads(train_state, grads, metrics, learning_rate, weight_metrics_computer, other_state_variables=extra)


class Trainer(BaseTrainer):
    """Trains a model with its loss, a learning rate schedule and, optionally, microbatches.

    It takes what ``BaseTrainer`` does, and more: ``learning_rate_fn`` gives the learning rate at a step,
    ``num_microbatches`` is the number of parts into which each batch is cut to save memory, and
    ``weight_metrics_computer`` adds metrics about the weights to every step.
    """

    def __init__(
        self,
        model: models.BaseModel,
        train_state: TrainState,
        partitioner: partitioning.BasePartitioner,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: TrainState,
        rng: jax.Array,
        learning_rate_fn: LearningRateCallable,
        num_microbatches: int | None,
        weight_metrics_computer: WeightMetricsComputer | None = None,
    ):
        self._learning_rate_fn = learning_rate_fn
        self._num_microbatches = num_microbatches
        self._weight_metrics_computer = weight_metrics_computer
        super().__init__(model, train_state, partitioner, eval_names, summary_dir, train_state_axes, rng)

    @functools.cached_property
    def _partitioned_train_step(self) -> PartitionedTrainCallable:
        data_spec = self._partitioner.data_partition_spec

        def train_step(train_state: TrainState, batch: Batch) -> tuple[TrainState, MetricMapType]:
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
        def one_eval_step(train_state: TrainState, batch: Batch) -> MetricMapType:
            return eval_step(self._model, train_state, batch)

        return self._partitioner.partition(
            one_eval_step,
            in_axis_resources=(self._train_state_axes, self._partitioner.data_partition_spec),
            out_axis_resources=None,
        )


@enum.unique
class ActionMode(enum.Enum):
    """The kind of work after which an action runs."""

    TRAIN = 1
    TRAIN_EVAL = 2
    INFER_EVAL = 3


class BaseAction(abc.ABC):
    """Something to do whenever there are new metrics."""

    @abc.abstractmethod
    def run(self, train_state: TrainState, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """Returns True if the training should stop, given the metrics of a train state.

        ``metrics_by_task`` has values by metric name, by task name; after training, the only task is ``train``.
        """


ActionMapType = Mapping[ActionMode, Sequence[BaseAction]]


def _watched(
    action: BaseAction, task: str, metric: str, metrics_by_task: Mapping[str, MetricValueMapType], *, floats: bool
) -> float | None:
    """Returns the number that ``action`` watches (``floats`` count too), or None after a warning that says why."""
    if task not in metrics_by_task:
        problem = f"there is no task {task!r}; there are {sorted(metrics_by_task)}"
    elif metric not in metrics_by_task[task]:
        problem = f"task {task!r} has no metric {metric!r}; it has {sorted(metrics_by_task[task])}"
    else:
        value = metrics_by_task[task][metric]
        if isinstance(value, clu.values.Scalar):
            return value.value
        if floats and isinstance(value, float):
            return value
        problem = f"metric {metric!r} of task {task!r} is a {type(value).__name__}, not a scalar"
    logging.warning("%s did nothing: %s.", type(action).__name__, problem)
    return None


class EarlyStoppingAction(BaseAction):
    """Stops the training when a metric has stopped improving.

    ``metric`` is a task name and a metric name; ``mode`` is ``"min"`` if less is better, ``"max"`` if more is.
    ``patience`` values in a row, each no better than the one before, end the training. A change of at most ``atol``,
    plus ``rtol`` as a fraction of the previous value, is not an improvement.

    Raises:
        ValueError: ``mode`` is neither of the two, or a tolerance is negative.
    """

    def __init__(self, metric: tuple[str, str], mode: str, patience: int = 3, atol: float = 0.0, rtol: float = 0.0):
        if mode not in ("min", "max"):
            raise ValueError(f"EarlyStoppingAction.mode must be 'min' or 'max', not {mode!r}")
        if atol < 0 or rtol < 0:
            raise ValueError(f"EarlyStoppingAction.atol ({atol}) and .rtol ({rtol}) must not be negative")
        self._task, self._metric = metric
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._atol = atol
        self._rtol = rtol
        self._history: list[float] = []

    def _no_better(self, previous: float, current: float) -> bool:
        gain = self._sign * (previous - current)
        return bool(gain <= self._atol + self._rtol * abs(previous))

    def run(self, train_state: TrainState, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """Adds the newest value to the history; True if none of the last ``patience`` values improved."""
        value = _watched(self, self._task, self._metric, metrics_by_task, floats=True)
        if value is None:
            return False
        self._history.append(value)
        if len(self._history) < self._patience:
            return False
        pairs = zip(self._history, self._history[1:], strict=False)
        if all(self._no_better(previous, current) for previous, current in pairs):
            logging.warning(
                "Stopping early: %s of task %s did not improve over its last %d values, %s.",
                self._metric, self._task, self._patience, self._history,
            )  # fmt: skip
            return True
        del self._history[0]
        return False


class TerminateOnNanAction(BaseAction):
    """Stops the training when a task's metric is no longer a finite number."""

    def __init__(self, task: str, metric: str = "loss"):
        self._task = task
        self._metric = metric

    def run(self, train_state: TrainState, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """Returns True if the watched value is NaN or infinite."""
        value = _watched(self, self._task, self._metric, metrics_by_task, floats=False)
        if value is None or math.isfinite(value):
            return False
        logging.warning("Stopping: %s of task %s is %s.", self._metric, self._task, value)
        return True
