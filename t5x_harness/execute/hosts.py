"""The hosts of a pod, as the process of one of them sees the others and the arrays that they share."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def wait_for_hosts(moment: str) -> None:
    """Waits until every host of the pod has come to the same call.

    Args:
      moment: a name for it, which all of them give.
    """
    multihost_utils.sync_global_devices(f"t5x-harness: {moment}")


def whole(value: Any) -> np.ndarray[Any, Any]:
    """Returns the values of an array. All hosts must call this, as each may hold only a part of it.

    The values are this host's own copy if it holds all parts, so that copies of hosts may be compared.
    """
    if not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    shards = {str(shard.index): shard for shard in value.addressable_shards}
    if sum(shard.data.size for shard in shards.values()) < value.size:
        return np.asarray(multihost_utils.process_allgather(value, tiled=True))
    copy = np.empty(value.shape, value.dtype)
    for shard in shards.values():
        copy[shard.index] = np.asarray(shard.data)
    return copy


def own_part(value: Any) -> np.ndarray[Any, Any]:
    """Returns an array, or the values of a global array that this process holds, as a vector of its shards in order."""
    if not isinstance(value, jax.Array) or value.is_fully_addressable:
        return np.asarray(value)
    shards = {str(shard.index): np.asarray(shard.data) for shard in value.addressable_shards}  # copies count once
    return np.concatenate([shards[index].reshape(-1) for index in sorted(shards)])


def own_rows(value: Any) -> np.ndarray[Any, Any]:
    """Returns an array, or the rows of a global array, divided by rows alone, that this process holds."""
    if not isinstance(value, jax.Array) or value.is_fully_addressable:
        return np.asarray(value)
    shards = {shard.index[0].start or 0: np.asarray(shard.data) for shard in value.addressable_shards}
    return np.concatenate([shards[start] for start in sorted(shards)])
