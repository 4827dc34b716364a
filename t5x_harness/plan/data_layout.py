"""Which hosts of the slice read which part of the data: T5X's data layout on the real pod."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from t5x_harness.slices.slice import Slice


@dataclasses.dataclass(frozen=True)
class DataLayout:
    """How a batch is shared on the slice.

    Attributes:
      positions: how many parts the devices cut a batch into: the size of the mesh's data axes.
      shards: how many parts the hosts read: SeqIO's shards.
      hosts: how many hosts the slice has; hosts that share a part read the same examples.
    """

    positions: int
    shards: int
    hosts: int

    @property
    def hosts_per_shard(self) -> int:
        """How many hosts read the same part of the data."""
        return self.hosts // self.shards


def data_layout(partitioner: Any, slice_: Slice) -> DataLayout:
    """Returns the data layout that T5X's partitioner has on the slice.

    T5X itself cannot be asked: here one process owns all devices and would read everything.

    Args:
      partitioner: T5X's partitioner, whose mesh consists of CPU devices numbered like the slice's.
      slice_: the slice.
    """
    mesh = partitioner.mesh
    axes = _data_axes(partitioner)
    ids = np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)
    on_first_host = np.array([place.host for place in slice_.coordinates])[ids] == 0
    local = dict(zip(mesh.axis_names, (len(set(places)) for places in np.nonzero(on_first_host)), strict=True))
    sizes = {axis: int(mesh.shape[axis]) for axis in axes}
    return DataLayout(
        positions=math.prod(sizes.values()),
        shards=math.prod(size // local[axis] for axis, size in sizes.items()),
        hosts=slice_.hosts,
    )


def _data_axes(partitioner: Any) -> tuple[str, ...]:
    """Returns the mesh axes that a batch is cut along; empty if the axis rules leave batches whole."""
    (axes,) = tuple(partitioner.data_partition_spec) or (None,)
    if axes is None:
        return ()
    return (axes,) if isinstance(axes, str) else tuple(axes)
