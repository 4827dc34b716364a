"""Prediction and scoring of whole datasets, sharded over the mesh and gathered again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from absl import logging
from jax.experimental import multihost_utils
from t5x import partitioning
from t5x import train_state as train_state_lib
from t5x._utils.callables import (
    InferFnCallable,
    InferFnResult,
    InferFnWithAuxResult,
    InferStepCallable,
    PyTree,
)
from t5x._utils.multihost import multihost_assert_equal

_PADDING = -1
_EVERYWHERE = jax.sharding.PartitionSpec()


def get_infer_fn(
    infer_step: InferStepCallable,
    batch_size: int,
    train_state_axes: train_state_lib.TrainState,
    partitioner: partitioning.BasePartitioner,
    keep_aux_as_numpy: bool = False,
) -> InferFnCallable:
    """Makes a function that predicts or scores a whole dataset.

    Args:
        infer_step: Does one batch, with arguments ``(params, batch[, rng][, flax_mutables])``; each row of what it
            returns belongs to the example of that row. It may return a pair of rows and a mapping of auxiliary rows.
        batch_size: Examples in the global batch.
        train_state_axes: How the train state is partitioned.
        partitioner: Partitions the step and shares out the examples.
        keep_aux_as_numpy: Leave auxiliary values as arrays rather than lists.

    Returns:
        A function of an enumerated dataset of unbatched examples, a train state and an optional PRNG key. It returns a
        list of (index, output as plain Python values) in ascending order, on every host the same; and, for steps with
        auxiliary values, a mapping of lists in that order.
    """
    step = partitioner.partition(
        step_with_indices(infer_step),
        in_axis_resources=(
            train_state_axes.params,
            partitioner.data_partition_spec,
            None,
            partitioner.data_partition_spec,
            train_state_axes.flax_mutables,
        ),
        out_axis_resources=(None, None),
    )
    layout = partitioner.get_data_layout(batch_size)

    def infer_fn(
        ds: tf.data.Dataset, train_state: train_state_lib.TrainState, rng: jnp.ndarray | None = None
    ) -> InferFnResult | InferFnWithAuxResult:
        multihost_assert_equal(
            jax.tree.map(lambda spec: np.array(spec.shape), ds.element_spec),
            "The examples have different shapes on different hosts: the dataset is probably not deterministic.",
        )
        num_examples = _length(ds)
        batches = _pad(ds, num_examples, batch_size).shard(layout.num_shards, layout.shard_id)
        batches = batches.batch(batch_size // layout.num_shards, drop_remainder=True)
        multihost_assert_equal(np.array(len(batches)), "The hosts have different numbers of batches.")
        logging.info("Inference of %d examples in %d batches of %d.", num_examples, len(batches), batch_size)

        results = []
        for indices, batch in batches.as_numpy_iterator():
            step_rng = None
            if rng is not None:
                step_rng, rng = jax.random.split(rng)
            result = _run_step(step, partitioner, train_state, batch, step_rng, indices)
            jax.tree.map(_start_copy, result)
            results.append(result)

        indices, outputs = _gather(results)
        if len(indices) != num_examples:
            raise ValueError(
                f"The step returned outputs for {len(indices)} of the dataset's {num_examples} examples: each index "
                "must come back once."
            )
        return _as_python(indices, outputs, keep_aux_as_numpy)

    return infer_fn


def step_with_indices(infer_step: InferStepCallable) -> Callable[..., tuple[jax.Array, PyTree]]:
    """Carries the examples' indices through the step, and leaves out arguments that it does not take."""
    takes = inspect.signature(infer_step).parameters

    def step(params: PyTree, batch: PyTree, rng: Any, indices: jax.Array, flax_mutables: PyTree) -> Any:
        args = (rng,) if "rng" in takes else ()
        kwargs = {"flax_mutables": flax_mutables} if "flax_mutables" in takes else {}
        return indices, infer_step(params, batch, *args, **kwargs)

    return step


def _length(ds: tf.data.Dataset) -> int:
    """The number of examples, which inference must know beforehand to pad the last batch."""
    try:
        length = len(ds)
    except TypeError as error:
        raise TypeError(
            f"Inference needs a dataset of known length ({error}). A preprocessor that filters or flat-maps, or one "
            "from `tf.compat.v1`, loses it: restore it with tf.data.experimental.assert_cardinality."
        ) from error
    if not length:
        raise ValueError("There is nothing to infer: the dataset has no examples.")
    return length


def _pad(ds: tf.data.Dataset, num_examples: int, batch_size: int) -> tf.data.Dataset:
    """Fills the last batch up with copies of the first example whose index says that they are padding."""
    missing = -num_examples % batch_size
    if not missing:
        return ds
    filler = ds.take(1).map(lambda _, example: (np.int64(_PADDING), example))
    return ds.concatenate(filler.cache().repeat(missing))


def _run_step(
    step: Callable[..., Any],
    partitioner: partitioning.BasePartitioner,
    train_state: train_state_lib.TrainState,
    batch: PyTree,
    rng: jnp.ndarray | None,
    indices: np.ndarray,
) -> tuple[jax.Array, PyTree]:
    if jax.process_count() == 1:
        return step(train_state.params, batch, rng, indices, train_state.flax_mutables)
    data_spec = partitioner.data_partition_spec
    batch, rng, indices = multihost_utils.host_local_array_to_global_array(
        (batch, rng, indices), partitioner.mesh, (data_spec, _EVERYWHERE, data_spec)
    )
    result = step(train_state.params, batch, rng, indices, train_state.flax_mutables)
    return multihost_utils.global_array_to_host_local_array(result, partitioner.mesh, (_EVERYWHERE, _EVERYWHERE))


def _start_copy(array: Any) -> None:
    """Begins the transfer to the host while the next batch computes."""
    if isinstance(array, jax.Array):
        array.addressable_data(0).copy_to_host_async()


def _gather(results: list[tuple[jax.Array, PyTree]]) -> tuple[np.ndarray, PyTree]:
    """Joins the batches, drops the padding and puts the examples into order."""
    indices, outputs = jax.tree.map(lambda *parts: np.concatenate([_on_host(part) for part in parts]), *results)
    order = np.argsort(indices, kind="stable")
    order = order[indices[order] > _PADDING]
    return indices[order], jax.tree.map(lambda rows: rows[order], outputs)


def _on_host(array: Any) -> np.ndarray:
    return np.asarray(array.addressable_data(0) if isinstance(array, jax.Array) else array)


def _as_python(indices: np.ndarray, outputs: PyTree, keep_aux_as_numpy: bool) -> InferFnResult | InferFnWithAuxResult:
    """Turns arrays over all examples into a list over examples, but leaves auxiliary values whole.

    Auxiliary values stay a mapping of lists, for a mapping for each example would repeat all its keys.
    """
    aux = None
    if isinstance(outputs, tuple) and len(outputs) == 2 and isinstance(outputs[1], Mapping):
        outputs, aux = outputs
    leaves, structure = jax.tree.flatten(outputs)
    rows = zip(*(leaf.tolist() for leaf in leaves), strict=True)
    by_example = map(functools.partial(jax.tree.unflatten, structure), rows)
    pairs = list(zip(indices.tolist(), by_example, strict=True))
    if aux is None:
        return pairs
    return pairs, jax.tree.map(list if keep_aux_as_numpy else np.ndarray.tolist, aux)
