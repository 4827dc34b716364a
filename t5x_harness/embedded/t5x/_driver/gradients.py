"""One step's arithmetic: gradients, in microbatches if asked for, and the update that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import clu.metrics
import jax
import jax.numpy as jnp
from absl import logging
from jax.sharding import PartitionSpec
from t5x import checkpoints, partitioning
from t5x import metrics as metrics_lib
from t5x._driver.errors import ConfigError
from t5x._driver.protocols import Batch, MetricMapType
from t5x._driver.weight_metrics import WeightMetricsComputer


@jax.jit
def _merge_on_device(left: Any, right: Any) -> Any:
    return jax.tree.map(lambda one, other: one.merge(other), left, right, is_leaf=metrics_lib.is_metric_obj)


def merge_metrics(a: Any, b: Any) -> Any:
    """Merges two trees of metrics of the same structure, metric by metric, in one compiled call."""
    return _merge_on_device(jax.tree.map(checkpoints.get_local_data, a), jax.tree.map(checkpoints.get_local_data, b))


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
    model: Any,
    train_state: Any,
    batch: Batch,
    dropout_rng: jax.Array,
    num_microbatches: int | None,
    data_partition_spec: PartitionSpec = PartitionSpec("data"),  # noqa: B008 (T5X's default, and immutable)
) -> tuple[Any, MetricMapType, Any]:
    """Computes the gradients of ``model.loss_fn`` over ``batch``, all at once or one microbatch after the other.

    Args:
        model: its ``loss_fn(params, batch, dropout_rng)`` returns the loss and metrics.  If the train state has Flax
            mutables, they are its fourth argument, and it returns metrics and mutables.
        train_state: holds the parameters.
        batch: features by name, each with the batch as its first dimension.
        dropout_rng: the step's key.
        num_microbatches: into how many equal parts to cut the batch; None, 0 and 1 leave it whole.
        data_partition_spec: how a microbatch lies on the mesh.

    Returns:
        The summed gradients (a tree like the parameters), the merged metrics, and the new mutables or None.

    Raises:
        ConfigError: if the batch cannot be cut into equal parts.
    """
    mutables = train_state.flax_mutables or None
    loss_and_grad = jax.value_and_grad(model.loss_fn, has_aux=True)

    def gradients_of(part: Batch, rng: jax.Array, mutables: Any) -> tuple[Any, MetricMapType, Any]:
        if mutables is None:
            (_, metrics), grads = loss_and_grad(train_state.params, part, rng)
            return grads, metrics, None
        (_, (metrics, mutables)), grads = loss_and_grad(train_state.params, part, rng, mutables)
        return grads, metrics, mutables

    if num_microbatches is None or num_microbatches <= 1:
        return gradients_of(batch, dropout_rng, mutables)

    size = _microbatch_size(batch, num_microbatches)
    # T5X draws one key for all microbatches of a step; the recorded losses depend on it.
    microbatch_rng = jax.random.split(dropout_rng)[1]

    def microbatch(index: jax.Array | int) -> Batch:
        return {
            name: partitioning.with_sharding_constraint(
                jax.lax.dynamic_slice_in_dim(feature, index * size, size), data_partition_spec
            )
            for name, feature in batch.items()
        }

    def add_microbatch(carry: tuple[Any, Any, Any], index: jax.Array) -> tuple[tuple[Any, Any, Any], None]:
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
    train_state: Any,
    grad_accum: Any,
    metrics: MetricMapType,
    learning_rate: jax.Array,
    weight_metrics_computer: WeightMetricsComputer | None,
    other_state_variables: Mapping[str, Any] | None = None,
) -> tuple[Any, MetricMapType]:
    """Lets the optimizer take its step.

    Args:
        train_state: before the step.
        grad_accum: the gradients, a tree like the parameters.
        metrics: of the step so far; the learning rate and the weights' metrics are added to it.
        learning_rate: a scalar.
        weight_metrics_computer: computes metrics about the weights, or None for none.
        other_state_variables: further keyword arguments of ``train_state.apply_gradient``, such as ``flax_mutables``.

    Returns:
        The train state after the step, and ``metrics``.
    """
    stepped = train_state.apply_gradient(grad_accum, learning_rate=learning_rate, **(other_state_variables or {}))
    rate = jnp.asarray([learning_rate])
    metrics["learning_rate"] = clu.metrics.Average.from_model_output(rate)
    metrics["learning_rate/current"] = clu.metrics.LastValue.from_model_output(rate)
    if weight_metrics_computer is not None:
        metrics.update(weight_metrics_computer.compute_metrics(grad_accum, train_state, stepped))
    return stepped, metrics


def eval_step(model: Any, train_state: Any, batch: Any) -> MetricMapType:
    """Returns the metrics of ``model.eval_fn`` on one batch; its third argument are Flax mutables, if there are any."""
    mutables = (train_state.flax_mutables,) if train_state.flax_mutables else ()
    _, metrics = model.eval_fn(train_state.params, batch, *mutables)
    return metrics
