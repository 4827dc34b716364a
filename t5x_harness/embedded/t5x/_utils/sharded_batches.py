"""Batches on the mesh: from each host's rows to one array over all devices, and batches of zeros to compile with."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import clu.data
import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from t5x import partitioning
from t5x._utils.callables import PyTree
from t5x._utils.dataset_config import refuse_airio

if TYPE_CHECKING:
    from t5x._utils.checkpoint_configs import CheckpointConfig


class ShardedDatasetIterator(clu.data.dataset_iterator.DatasetIterator):
    """Lays every batch of another iterator over the mesh."""

    def __init__(
        self,
        iterator: clu.data.dataset_iterator.DatasetIterator,
        partitioner: partitioning.BasePartitioner,
        global_shapes: PyTree,
    ) -> None:
        """Wraps an iterator.

        Args:
            iterator: Gives this host's rows of each batch, as trees of NumPy arrays.
            partitioner: Names the mesh and how batches are partitioned.
            global_shapes: The shape of each whole batch array.
        """
        self._iterator = iterator
        self._partitioner = partitioner
        self._global_shapes = global_shapes

    def __next__(self) -> PyTree:
        return _lay_over_mesh(self._partitioner, self._global_shapes, next(self._iterator))

    def reset(self) -> None:
        """Starts again from the first batch."""
        self._iterator.reset()

    @property
    def element_spec(self) -> PyTree:
        """Dtype and shape of this host's rows."""
        return self._iterator.element_spec

    def save(self, filename: os.PathLike[str] | str) -> None:
        """Saves the position in the data."""
        self._iterator.save(filename)

    def restore(self, filename: os.PathLike[str] | str) -> None:
        """Goes back to a saved position."""
        self._iterator.restore(filename)

    @property
    def iterator(self) -> Any:
        """What checkpoints store: the ``tf.data`` iterator if there is one, otherwise the wrapped iterator."""
        if isinstance(self._iterator, clu.data.dataset_iterator.TfDatasetIterator):
            return self._iterator.iterator
        return self._iterator


def _lay_over_mesh(partitioner: partitioning.BasePartitioner, global_shapes: PyTree, host_arrays: PyTree) -> PyTree:
    """Makes global arrays of each host's rows; hosts that share rows must bring the same ones."""
    sharding = jax.sharding.NamedSharding(partitioner.mesh, partitioner.data_partition_spec)

    def lay(rows: np.ndarray, global_shape: tuple[int, ...]) -> jax.Array:
        _check_rows(sharding, global_shape)
        return jax.make_array_from_process_local_data(sharding, rows, global_shape)

    return jax.tree.map(lay, host_arrays, global_shapes)


def _check_rows(sharding: jax.sharding.NamedSharding, global_shape: tuple[int, ...]) -> None:
    axes = sharding.spec[0] if sharding.spec else None
    names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    shards = math.prod(sharding.mesh.shape[name] for name in names)
    if global_shape[0] % shards:
        raise ValueError(
            f"A batch of {global_shape[0]} examples can't be divided over {shards} shards (mesh axis "
            f"{' x '.join(names)}): choose a batch size that is a multiple of {shards}."
        )


def prepare_train_iter(
    train_iter: tf.data.Dataset | clu.data.dataset_iterator.DatasetIterator,
    *,
    partitioner: partitioning.BasePartitioner,
    checkpoint_cfg: CheckpointConfig,
    data_layout: partitioning.DataLayout,
) -> clu.data.dataset_iterator.PeekableDatasetIterator:
    """Makes the iterator that training reads from.

    Args:
        train_iter: This host's batches.
        partitioner: Where the batches are to lie.
        checkpoint_cfg: Not used; ``get_dataset_fn`` has what it needs of it.
        data_layout: Gives the size of the global batch.

    Returns:
        An iterator over global batches that can be peeked into.

    Raises:
        ValueError: ``train_iter`` is neither a dataset nor an iterator of clu's interface.
    """
    del checkpoint_cfg
    refuse_airio(train_iter)
    if isinstance(train_iter, tf.data.Dataset):
        train_iter = clu.data.dataset_iterator.TfDatasetIterator(train_iter, checkpoint=True)
    if not isinstance(train_iter, clu.data.dataset_iterator.DatasetIterator):
        raise ValueError(
            "`get_dataset_fn` must return a tf.data.Dataset or a clu DatasetIterator; it returned unsupported type "
            f"{type(train_iter).__qualname__}."
        )
    global_shapes = jax.tree.map(lambda spec: (data_layout.batch_size, *spec.shape[1:]), train_iter.element_spec)
    sharded = ShardedDatasetIterator(train_iter, partitioner, global_shapes)
    return clu.data.dataset_iterator.PeekableDatasetIterator(sharded)


def get_zeros_batch_like_spec(batch_spec: Mapping[str, jax.ShapeDtypeStruct]) -> Mapping[str, jnp.ndarray]:
    """Makes a batch of zeros of these shapes and dtypes."""
    return {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in batch_spec.items()}


def get_zeros_batch_like_dataset(dataset: tf.data.Dataset, batch_size: int | None = None) -> Mapping[str, jnp.ndarray]:
    """Makes a batch of zeros like those of a dataset.

    Args:
        dataset: Its elements are batches: flat dictionaries of arrays.
        batch_size: Rows in the batch; the dataset's own number if not given.
    """
    refuse_airio(dataset)
    specs = {}
    for name, tensor in dataset.element_spec.items():
        dtype = tensor.dtype.as_numpy_dtype if isinstance(tensor.dtype, tf.DType) else tensor.dtype
        shape = (batch_size, *tensor.shape[1:]) if batch_size else tuple(tensor.shape)
        specs[name] = jax.ShapeDtypeStruct(shape, dtype)
    return get_zeros_batch_like_spec(specs)
