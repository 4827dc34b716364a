"""Device meshes: which device sits at which place of the (data, model) grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from absl import logging
from jax.experimental import mesh_utils
from jax.sharding import Mesh
from t5x._shown_as import shown_as

HardwareMesh: TypeAlias = tuple[int, ...]
_AXES = ("data", "model")

_TWO_CORE_KINDS = ("TPU v2", "TPU v3")
_MEGACORE_KINDS = ("TPU v4", "TPU v4 lite")
# Model-parallel tile (x, y, z, core) of chips with two cores that are devices of their own: cores first, then chips.
_TWO_CORE_TILES: dict[int, HardwareMesh] = {
    1: (1, 1, 1, 1),
    2: (1, 1, 1, 2),
    4: (2, 1, 1, 2),
    8: (2, 2, 1, 2),
    16: (4, 2, 1, 2),
}
# Tiles of chips that are one device, each with the least size of the slice that it is taken for; the first that fits.
# The last of each row is taken when none does, and is refused later if it does not divide the slice.
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


@shown_as("t5x.partitioning")
def bounds_from_last_device(last_device: Any) -> HardwareMesh:
    """Returns the size of the hardware mesh, given the device at its far corner.

    Args:
        last_device: the device with the largest coordinates.

    Returns:
        ``(x, y, z, cores per chip)`` where devices have coordinates, else ``(processes, local devices)``.
    """
    coords = getattr(last_device, "coords", ())
    if len(coords) == 3:
        return (*(c + 1 for c in coords), last_device.core_on_chip + 1)
    return jax.process_count(), jax.local_device_count()


@shown_as("t5x.partitioning")
def get_coords(device: Any) -> HardwareMesh:
    """Returns the place of a device in the hardware mesh that :func:`bounds_from_last_device` measures."""
    if hasattr(device, "coords"):
        return (*device.coords, device.core_on_chip)
    return device.process_index, device.id % jax.local_device_count()


@shown_as("t5x.partitioning")
def get_mesh(
    model_parallel_submesh: HardwareMesh,
    input_devices: Sequence[Any] = (),
    input_local_devices: Sequence[Any] = (),
    tile_by_host_if_needed: bool = True,
    backend: str | None = None,
) -> Mesh:
    """Lays the devices out as (data, model), with one tile of neighbouring devices for each model replica.

    Args:
        model_parallel_submesh: size of the tile, ``(x, y, z, core)`` on a TPU; each must divide the slice's.
        input_devices: all devices; those of the backend by default.
        input_local_devices: the devices of one host; those of the first by default.
        tile_by_host_if_needed: order the devices host by host where a host's devices would not be contiguous.
        backend: name of a JAX backend.

    Returns:
        A mesh with axes ``data`` and ``model``.

    Raises:
        AssertionError: the tile does not divide the slice, or is neither a part nor a multiple of a host's devices.
    """
    devices = input_devices or jax.devices(backend)
    local_devices = input_local_devices or jax.local_devices(0, backend)
    bounds = bounds_from_last_device(max(devices, key=get_coords))
    host = bounds_from_last_device(max(local_devices, key=get_coords))
    tile = tuple(model_parallel_submesh)
    if any(size % part for size, part in zip(bounds, tile, strict=False)):
        raise AssertionError(
            f"model_parallel_submesh {tile} does not fit the devices {bounds}: each of its dimensions must divide the "
            "one of the device mesh"
        )
    if any(size % part for size, part in zip(bounds, host, strict=False)):
        raise AssertionError(f"The devices of a host, {host}, do not divide the device mesh {bounds}")

    grid = np.empty(bounds, dtype=object)
    for device in devices:
        grid[get_coords(device)] = device

    swap = _z_major_swap(bounds, tile)
    if swap:
        if tile[3] != bounds[3]:
            raise AssertionError(f"model_parallel_submesh {tile} must use all {bounds[3]} cores of a chip")
        grid = grid.swapaxes(*swap)
        bounds, tile = _swapped(bounds, swap), _swapped(tile, swap)
        block = tile
    elif tile_by_host_if_needed:
        logging.warning("Devices are ordered host by host for model_parallel_submesh %s on %s", tile, bounds)
        block = host
    else:
        block = tile
    return _mesh(_tiled(grid, tile, block))


def _z_major_swap(bounds: HardwareMesh, tile: HardwareMesh) -> tuple[int, int] | None:
    """The axis to exchange with z where a tile spans whole rows or planes of the slice.

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


def _swapped(sizes: HardwareMesh, axes: tuple[int, int]) -> HardwareMesh:
    order = list(sizes)
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    return tuple(order)


def _tiled(grid: np.ndarray, tile: HardwareMesh, block: HardwareMesh) -> np.ndarray:
    """Orders a grid of devices as (replica, place in the tile), block by block in both.

    Each dimension splits into (blocks of replicas, replicas in a block, blocks of a tile, places in a block of a tile);
    with the tile as block this is plain tiling. A tile may have more dimensions than a grid without coordinates: the
    rest only counts for its size.
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


@shown_as("t5x.partitioning")
def get_cpu_mesh() -> Mesh:
    """Returns the mesh of all CPU devices: ``data`` over processes, ``model`` over the devices of each."""
    grid = np.empty((jax.process_count(), jax.local_device_count()), dtype=object)
    for device in jax.devices():
        grid[device.process_index, device.id % jax.local_device_count()] = device
    return _mesh(grid)


@shown_as("t5x.partitioning")
def get_gpu_mesh(num_partitions: int) -> Mesh:
    """Returns the mesh of all GPUs, with ``model`` inside a process as far as it goes.

    Args:
        num_partitions: devices per model replica: a part or a multiple of a process' devices.

    Raises:
        AssertionError: it is neither.
    """
    local, processes = jax.local_device_count(), jax.process_count()
    inside = min(num_partitions, local)
    if local % inside or num_partitions % inside:
        raise AssertionError(
            f"num_partitions={num_partitions} must be a part or a multiple of the {local} GPUs of a process"
        )
    across = num_partitions // inside
    grid = mesh_utils.create_hybrid_device_mesh(
        mesh_shape=[local // inside, inside],
        dcn_mesh_shape=[processes // across, across],
        process_is_granule=True,
    )
    return _mesh(grid)


@shown_as("t5x.partitioning")
def default_mesh(
    num_partitions: int | None,
    model_parallel_submesh: HardwareMesh | None = None,
    backend: str | None = None,
    ici_mesh_shape: HardwareMesh | None = None,
    dcn_mesh_shape: HardwareMesh | None = None,
) -> Mesh:
    """Chooses the mesh for all devices.

    Args:
        num_partitions: devices per model replica; not read on CPU, nor when ``model_parallel_submesh`` is given.
        model_parallel_submesh: the tile of a replica, ``(x, y, z, core)``.
        backend: name of a JAX backend.
        ici_mesh_shape: (replica, data, model) inside a slice; counts only together with ``dcn_mesh_shape``.
        dcn_mesh_shape: (replica, data, model) over slices.

    Returns:
        A mesh with axes ``data`` and ``model``, and ``replica`` before them for several slices.

    Raises:
        ValueError: no tile is known for this kind of device and number of partitions.
        AssertionError: the tile does not fit the devices.
    """
    devices = jax.devices(backend)
    if ici_mesh_shape is not None and dcn_mesh_shape is not None:
        grid = mesh_utils.create_hybrid_device_mesh(ici_mesh_shape, dcn_mesh_shape, devices=devices)
        return _mesh(grid, ("replica", *_AXES))
    if model_parallel_submesh:
        return get_mesh(model_parallel_submesh, backend=backend)

    last = devices[-1]
    if last.platform == "cpu":
        return get_cpu_mesh()
    if last.platform == "gpu":
        return get_gpu_mesh(num_partitions or 1)
    bounds = bounds_from_last_device(last)
    tile = _known_tile(last.device_kind, bounds, num_partitions)
    if tile is None:
        raise ValueError(
            f"No default mesh for num_partitions={num_partitions} on {last.device_kind} with devices {bounds}: "
            f"set model_parallel_submesh to a tile (x, y, z, core) of {num_partitions} devices instead"
        )
    return get_mesh(tile, backend=backend)


def _mesh(grid: np.ndarray, axes: tuple[str, ...] = _AXES) -> Mesh:
    """The mesh of a grid of devices; the log says what it is made of, which a job's owner sees nowhere else."""
    logging.info("The mesh has %d devices, the first is %r", grid.size, grid.flat[0])
    return Mesh(grid, axes)


def _known_tile(kind: str, bounds: HardwareMesh, num_partitions: int | None) -> HardwareMesh | None:
    if kind in _TWO_CORE_KINDS:
        return _TWO_CORE_TILES.get(num_partitions or 0)
    if kind not in _MEGACORE_KINDS or bounds[3] != 1:
        return None
    for least, tile in _MEGACORE_TILES.get(num_partitions or 0, ()):
        if all(size >= needed for size, needed in zip(bounds, least, strict=False)):
            return tile
    return None
