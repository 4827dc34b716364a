"""Where the devices of a slice are, and how a mesh orders them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from absl import logging
from jax.sharding import Mesh

HardwareMesh: TypeAlias = tuple[int, ...]
AXES = ("data", "model")
TWO_CORE_KINDS = ("TPU v2", "TPU v3")
MEGACORE_KINDS = ("TPU v4", "TPU v4 lite")

# Model-parallel tile (x, y, z, core) of chips whose two cores are separate devices: cores first, then chips.
_TWO_CORE_TILES: dict[int, HardwareMesh] = {
    1: (1, 1, 1, 1),
    2: (1, 1, 1, 2),
    4: (2, 1, 1, 2),
    8: (2, 2, 1, 2),
    16: (4, 2, 1, 2),
}

# Tiles of chips that are one device, each with the smallest slice that it is used for; the first that fits is used.
# If none fits, the last of the row is used, and refused later if it does not divide the slice.
_MEGACORE_TILES: dict[int, tuple[tuple[HardwareMesh, HardwareMesh], ...]] = {
    1: (((1, 1, 1), (1, 1, 1, 1)),),
    2: (((1, 1, 1), (1, 2, 1, 1)),),
    4: (((4, 1, 1), (4, 1, 1, 1)), ((1, 1, 1), (2, 2, 1, 1))),
    8: (((1, 1, 8), (1, 1, 8, 1)), ((1, 1, 1), (4, 2, 1, 1))),
    16: (
        ((1, 1, 16), (1, 1, 16, 1)),
        ((8, 1, 1), (8, 2, 1, 1)),
        ((4, 1, 1), (4, 4, 1, 1)),
        ((1, 1, 1), (2, 2, 4, 1)),
    ),
}


def z_major_swap(bounds: HardwareMesh, tile: HardwareMesh) -> tuple[int, int] | None:
    """Returns the axis to swap with z if a tile spans whole rows or planes of the slice.

    With z major in the remaining plane, each host's devices are contiguous without ordering them by host.
    """
    if len(bounds) != 4:
        return None
    for spanned, other in ((0, 1), (1, 0)):
        whole = tile[spanned] == bounds[spanned] > 1
        if (whole and tile[other] == tile[2] == 1) or (
            tile[spanned] == 1 and tile[other] == bounds[other] > 1 and tile[2] == bounds[2] > 1
        ):
            return other, 2
    return None


def swapped(sizes: HardwareMesh, axes: tuple[int, int]) -> HardwareMesh:
    order = list(sizes)
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    return tuple(order)


def tiled(grid: np.ndarray, tile: HardwareMesh, block: HardwareMesh) -> np.ndarray:
    """Orders a grid of devices as (replica, position in the tile), block by block in both.

    Each dimension splits into (blocks of replicas, replicas per block, blocks of a tile, positions per block of a
    tile); if the block is the tile, this is plain tiling. A tile may have more dimensions than a grid without
    coordinates; the extra ones only contribute their size.
    """
    splits = []
    for size, part, unit in zip(grid.shape, tile, block, strict=False):
        if part % unit and unit % part:
            raise AssertionError(
                f"model_parallel_submesh {tile} must in each dimension be a part or a multiple of a host's devices, "
                f"{block}"
            )
        across, inside = (part // unit, unit) if part >= unit else (1, part)
        replicas_inside = max(unit // part, 1)
        splits.append((size // part // replicas_inside, replicas_inside, across, inside))
    rank = grid.ndim
    split_grid = grid.reshape([count for split in splits for count in split])
    order = [4 * dim + level for level in range(4) for dim in range(rank)]
    return split_grid.transpose(order).reshape(-1, int(np.prod(tile)))


def mesh_of(grid: np.ndarray, axes: tuple[str, ...] = AXES) -> Mesh:
    """Makes the mesh of a grid of devices, and logs its layout, which a job's owner sees nowhere else."""
    logging.info("The mesh has %d devices, the first is %r", grid.size, grid.flat[0])
    return Mesh(grid, axes)


def known_tile(kind: str, bounds: HardwareMesh, num_partitions: int | None) -> HardwareMesh | None:
    if kind in TWO_CORE_KINDS:
        return _TWO_CORE_TILES.get(num_partitions or 0)
    if kind not in MEGACORE_KINDS or bounds[3] != 1:
        return None
    for least, tile in _MEGACORE_TILES.get(num_partitions or 0, ()):
        if all(size >= needed for size, needed in zip(bounds, least, strict=False)):
            return tile
    return None
