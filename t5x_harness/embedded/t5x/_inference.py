"""One inference step on the mesh, and the transfer of its results to the host."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from t5x._lazy import tf
from t5x.checkpoints import get_local_data

if TYPE_CHECKING:
    from t5x.partitioning import BasePartitioner
    from t5x.train_state import TrainState
    from t5x.utils import InferStepCallable, PyTree, _InferFnResult, _InferFnWithAuxResult

PADDING = -1
EVERYWHERE = jax.sharding.PartitionSpec()


def step_with_indices(infer_step: InferStepCallable) -> Callable[..., tuple[jax.Array, PyTree]]:
    """Carries the examples' indices through the step, and omits arguments that the step does not take."""
    takes = inspect.signature(infer_step).parameters

    def step(params: PyTree, batch: PyTree, rng: Any, indices: jax.Array, flax_mutables: PyTree) -> Any:
        args = (rng,) if "rng" in takes else ()
        kwargs = {"flax_mutables": flax_mutables} if "flax_mutables" in takes else {}
        return indices, infer_step(params, batch, *args, **kwargs)

    return step


def length_of(ds: tf.data.Dataset) -> int:
    """Returns the number of examples, which inference must know in advance to pad the last batch."""
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


def pad(ds: tf.data.Dataset, num_examples: int, batch_size: int) -> tf.data.Dataset:
    """Pads the last batch with copies of the first example, whose index marks them as padding."""
    missing = -num_examples % batch_size
    if not missing:
        return ds
    filler = ds.take(1).map(lambda _, example: (np.int64(PADDING), example))
    return ds.concatenate(filler.cache().repeat(missing))


def run_step(
    step: Callable[..., Any],
    partitioner: BasePartitioner,
    train_state: TrainState,
    batch: PyTree,
    rng: jnp.ndarray | None,
    indices: np.ndarray,
) -> tuple[jax.Array, PyTree]:
    if jax.process_count() == 1:
        return step(train_state.params, batch, rng, indices, train_state.flax_mutables)
    data_spec = partitioner.data_partition_spec
    batch, rng, indices = multihost_utils.host_local_array_to_global_array(
        (batch, rng, indices), partitioner.mesh, (data_spec, EVERYWHERE, data_spec)
    )
    result = step(train_state.params, batch, rng, indices, train_state.flax_mutables)
    return multihost_utils.global_array_to_host_local_array(result, partitioner.mesh, (EVERYWHERE, EVERYWHERE))


def start_copy(array: Any) -> None:
    """Begins the transfer to the host while the next batch computes."""
    if isinstance(array, jax.Array):
        array.addressable_data(0).copy_to_host_async()


def gather(results: list[tuple[jax.Array, PyTree]]) -> tuple[np.ndarray, PyTree]:
    """Joins the batches, drops the padding and puts the examples into order."""
    indices, outputs = jax.tree.map(lambda *parts: np.concatenate([get_local_data(part) for part in parts]), *results)
    order = np.argsort(indices, kind="stable")
    order = order[indices[order] > PADDING]
    return indices[order], jax.tree.map(lambda rows: rows[order], outputs)


def as_python(indices: np.ndarray, outputs: PyTree, keep_aux_as_numpy: bool) -> _InferFnResult | _InferFnWithAuxResult:
    """Turns arrays over all examples into a list of examples; auxiliary values become a mapping of lists."""
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
