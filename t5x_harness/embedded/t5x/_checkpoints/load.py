"""Reading a checkpoint in T5X's own layout without a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from t5x import state_utils
from t5x._checkpoints import arrays
from t5x._checkpoints.lazy import LazyArray, LazyThreadPoolArray
from t5x._checkpoints.legacy_file import CheckpointFile, find_checkpoint
from t5x._checkpoints.transformations import RestoreStateTransformationFn, transform_for_restore
from t5x._shown_as import shown_as

_READERS = 32


@shown_as("t5x.checkpoints")
def load_t5x_checkpoint(
    path: str | os.PathLike[str],
    step: int | None = None,
    state_transformation_fns: Sequence[RestoreStateTransformationFn] = (),
    remap: bool = True,
    restore_dtype: Any = None,
    lazy_parameters: bool = False,
) -> dict[str, Any]:
    """Reads a whole checkpoint into host memory.

    Args:
        path: the folder of all checkpoints, that of one, or the file ``checkpoint`` in it.
        step: which one, for a folder of all checkpoints; the last by default.
        state_transformation_fns: changes to make, in order; they see no model.
        remap: apply the changes.
        restore_dtype: dtype to deliver all leaves in; as saved by default.
        lazy_parameters: deliver arrays that are read when asked for.

    Returns:
        Nested dicts of NumPy arrays, or lazy arrays, under ``target`` and ``state``.

    Raises:
        ValueError: there is no such checkpoint, or it is in another layout.
    """
    file = CheckpointFile.read(find_checkpoint(path, step))
    state = transform_for_restore(file.state, {}, state_transformation_fns) if remap else file.state
    leaves = state_utils.flatten_state_dict(state, keep_empty_nodes=True)
    lazy = {name: _lazy(file, name, leaf, restore_dtype) for name, leaf in leaves.items()}
    if lazy_parameters:
        return traverse_util.unflatten_dict(lazy, sep="/")
    with ThreadPoolExecutor(_READERS) as readers:
        values = readers.map(lambda leaf: leaf.get() if isinstance(leaf, LazyArray) else leaf, lazy.values())
        return traverse_util.unflatten_dict(dict(zip(lazy, values, strict=True)), sep="/")


def _lazy(file: CheckpointFile, name: str, leaf: Any, dtype: Any) -> Any:
    if leaf is None or leaf is traverse_util.empty_node:
        return leaf
    if isinstance(leaf, Mapping):
        stored_as = dtype or arrays.stored_dtype(leaf)
        return LazyThreadPoolArray(
            arrays.stored_shape(leaf), stored_as, lambda: arrays.read_array(file.folder, leaf, name, dtype)
        )
    value = np.asarray(leaf)
    return LazyThreadPoolArray(value.shape, value.dtype if dtype is None else jnp.dtype(dtype), lambda: value)
