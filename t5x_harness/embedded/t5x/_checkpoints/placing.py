"""Values on their way from a checkpoint to the devices: dtype, shape and sharding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t5x._checkpoints.lazy import LazyArray
from t5x._shown_as import shown_as


@shown_as("t5x.checkpoints")
def get_local_data(x: Any) -> Any:
    """Returns this process' first part of a ``jax.Array``; for a replicated one that is its value."""
    if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
        return x.addressable_data(0)
    return x


def step_of(train_state: Any) -> int:
    """Returns the step of a state as a number."""
    step = train_state.step
    return int(get_local_data(step.get() if isinstance(step, LazyArray) else step))


def sharding_on(mesh: Mesh, axes: PartitionSpec | None) -> NamedSharding:
    """Returns the sharding for partition axes; None is replicated."""
    return NamedSharding(mesh, PartitionSpec(None) if axes is None else axes)


def place(value: Any, sharding: NamedSharding, dtype: Any = None) -> Any:
    """Puts a value onto the devices.

    Args:
        value: an array that this process has whole, or a ``jax.Array``. One that lies as asked for is left as it is.
        sharding: where to put it.
        dtype: dtype to cast to; none by default.
    """
    if isinstance(value, jax.Array) and value.sharding.is_equivalent_to(sharding, value.ndim):
        return value
    array = np.asarray(value) if not isinstance(value, jax.Array) else value
    if dtype is not None:
        array = array.astype(jnp.dtype(dtype))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def check_shape(path: str, name: str, stored: tuple[int, ...], expected: Any, *, exact: bool) -> None:
    """Compares the shape of a stored leaf with the model's.

    Args:
        path: of the checkpoint, for the message.
        name: of the leaf.
        stored: shape in the checkpoint.
        expected: the model's leaf.
        exact: refuse another shape. T5X takes optimizer state of any shape, which may go well, so others are logged.

    Raises:
        ValueError: the shapes differ and ``exact`` is set.
    """
    wanted = tuple(jnp.shape(expected))
    if tuple(stored) == wanted:
        return
    message = f"{name} has shape {tuple(stored)} in checkpoint {path} and {wanted} in the model"
    if exact:
        raise ValueError(message)
    logging.warning("%s; it is restored as it is", message)
