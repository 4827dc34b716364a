"""What one process holds of an array, and of a batch, that is spread over all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence

import numpy as np
from jax.sharding import Mesh
from t5x._shown_as import shown_as

_AxisEntry = str | tuple[str, ...] | None


@shown_as("t5x.partitioning")
@dataclasses.dataclass
class LocalChunkInfo:
    """The part of an array on this process.

    Attributes:
        slice: one slice for each dimension.
        replica_id: which of the processes with the same part this is; the one with 0 writes it to checkpoints.
    """

    slice: tuple[slice, ...]
    replica_id: int


@shown_as("t5x.partitioning")
@dataclasses.dataclass
class DataLayout:
    """How a global batch is divided among processes.

    Attributes:
        batch_size: examples in the global batch.
        shard_id: which shard of the data this process reads.
        num_shards: number of shards.
        is_first_host_in_replica_set: whether this is the first of the processes that read the same shard.
    """

    batch_size: int
    shard_id: int
    num_shards: int
    is_first_host_in_replica_set: bool


@shown_as("t5x.partitioning")
class LocalChunker:
    """Finds the part of an array that lies on this process.

    Args:
        global_mesh: the mesh over the devices of all processes.

    Attributes:
        mesh_axes: names of the mesh's axes, in order.
        num_chunks: for each axis, the number of processes along it.
        chunk_ids: for each axis, the place of this process among them.
    """

    def __init__(self, global_mesh: Mesh):
        self.global_mesh = global_mesh
        self.mesh_axes = list(global_mesh.axis_names)
        local = global_mesh.local_mesh
        corner = np.argwhere(global_mesh.devices == local.devices.flat[0])[0]
        sizes = zip(self.mesh_axes, global_mesh.devices.shape, local.devices.shape, corner, strict=True)
        self.num_chunks: dict[str, int] = {}
        self.chunk_ids: dict[str, int] = {}
        for axis, global_size, local_size, start in sizes:
            self.num_chunks[axis] = global_size // local_size
            self.chunk_ids[axis] = int(start) // local_size

    def get_local_chunk_info(self, global_shape: tuple[int, ...], mesh_axes: Sequence[_AxisEntry]) -> LocalChunkInfo:
        """Returns the part of an array on this process.

        Args:
            global_shape: shape of the whole array.
            mesh_axes: for each dimension the mesh axis it is divided along, several of them, or None.
        """
        slices = [slice(None)] * len(global_shape)
        used: list[str] = []
        for dim, (size, entry) in enumerate(zip(global_shape, mesh_axes, strict=False)):
            if not entry:
                continue
            axes = _as_axes(entry)
            used += axes
            length = size // math.prod(self.num_chunks[axis] for axis in axes)
            start = self.get_shard_id(axes) * length
            slices[dim] = slice(start, start + length)
        return LocalChunkInfo(slice=tuple(slices), replica_id=self.get_replica_id(used))

    def get_shard_id(self, sharded_mesh_axes: str | Collection[str | None]) -> int:
        """Returns the place of this process along the given mesh axes, the last of them counting fastest."""
        place = 0
        for axis in _as_axes(sharded_mesh_axes):
            place = place * self.num_chunks[axis] + self.chunk_ids[axis]
        return place

    def get_replica_id(self, sharded_mesh_axes: str | Collection[str | None]) -> int:
        """Returns the place of this process along all other mesh axes."""
        sharded = set(_as_axes(sharded_mesh_axes))
        return self.get_shard_id([axis for axis in self.mesh_axes if axis not in sharded])


def _as_axes(entry: str | Collection[str | None]) -> list[str]:
    return [entry] if isinstance(entry, str) else [axis for axis in entry if axis is not None]
