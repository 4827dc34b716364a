"""Partitioning: the mesh of devices, the layout of arrays on it, and functions compiled for all devices."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Callable, TypeAlias  # noqa: UP035 (as a base class, this Callable is generic)

import jax
import numpy as np
from absl import logging
from flax import traverse_util
from flax.linen import partitioning as flax_partitioning
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t5x._meshes import AXES, HardwareMesh, known_tile, mesh_of, swapped, tiled, z_major_swap
from t5x.train_state import TrainState

JaxDevice = jax.Device
TpuMesh = tuple[int, int, int, int]  # x, y, z, cores
OtherMesh = tuple[int, int]
LogicalAxisRules: TypeAlias = Sequence[tuple[str, str | tuple[str, ...] | None]]
_REPLICATED = ("relpos_buckets", "abspos_buckets", "length", "layers", "stack", "mlp_activations")


class AxisNames(tuple[str, ...]):
    """The logical axis names of one array; a leaf of a tree, unlike a plain tuple."""

    __slots__ = ()

    def __new__(cls, *names: str) -> AxisNames:
        """Makes the names from separate arguments."""
        return super().__new__(cls, names)

    def __repr__(self) -> str:
        return f"AxisNames{tuple(self)!r}"


def standard_logical_axis_rules(
    activation_partitioning_dims: int = 1,
    parameter_partitioning_dims: int = 1,
    additional_rules: LogicalAxisRules | None = None,
) -> LogicalAxisRules:
    """Returns the rules for T5X's networks, of which the first that fits is used; ``additional_rules`` follow them.

    If dimensions are 2 instead of 1, activations are divided along ``embed`` too, over ``model``, and parameters
    over ``data``.

    Raises:
        ValueError: a number of dimensions is neither 1 nor 2.
    """
    dims = (activation_partitioning_dims, parameter_partitioning_dims)
    if not set(dims) <= {1, 2}:
        raise ValueError(
            f"activation_partitioning_dims={dims[0]} and parameter_partitioning_dims={dims[1]}: each must be 1 or 2"
        )
    logging.info("Logical axis rules for activation_partitioning_dims=%d, parameter_partitioning_dims=%d", *dims)
    embed = [("embed", "model")] * (dims[0] == 2) + [("embed", "data")] * (dims[1] == 2)
    sharded = [("vocab", "model"), ("mlp", "model"), ("heads", "model"), ("kv", None), ("joined_kv", "model")]
    if not embed:
        sharded.insert(1, ("embed", None))
    return [("batch", "data"), *sharded, *embed, *((axis, None) for axis in _REPLICATED), *(additional_rules or ())]


def bounds_from_last_device(last_device: Any) -> HardwareMesh:
    """Returns the size of the hardware mesh, given the device with the largest coordinates.

    That is ``(x, y, z, cores per chip)`` if devices have coordinates, else ``(processes, local devices)``.
    """
    coords = getattr(last_device, "coords", ())
    if len(coords) == 3:
        return (*(c + 1 for c in coords), last_device.core_on_chip + 1)
    return jax.process_count(), jax.local_device_count()


def get_coords(device: Any) -> HardwareMesh:
    """Returns the position of a device in the hardware mesh that ``bounds_from_last_device`` measures."""
    if hasattr(device, "coords"):
        return (*device.coords, device.core_on_chip)
    return device.process_index, device.id % jax.local_device_count()


def get_mesh(
    model_parallel_submesh: HardwareMesh,
    input_devices: Sequence[Any] = (),
    input_local_devices: Sequence[Any] = (),
    tile_by_host_if_needed: bool = True,
    backend: str | None = None,
) -> Mesh:
    """Lays the devices out as (data, model), with one tile of neighboring devices for each model replica.

    ``model_parallel_submesh`` is the tile's size, ``(x, y, z, core)`` on a TPU; each must divide the slice's. By
    default the devices are the backend's, and the local ones the first host's. If a host's devices
    would not be contiguous, ``tile_by_host_if_needed`` orders them host by host.

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

    swap = z_major_swap(bounds, tile)
    if swap:
        if tile[3] != bounds[3]:
            raise AssertionError(f"model_parallel_submesh {tile} must use all {bounds[3]} cores of a chip")
        grid = grid.swapaxes(*swap)
        bounds, tile = swapped(bounds, swap), swapped(tile, swap)
        block = tile
    elif tile_by_host_if_needed:
        logging.warning("Devices are ordered host by host for model_parallel_submesh %s on %s", tile, bounds)
        block = host
    else:
        block = tile
    return mesh_of(tiled(grid, tile, block))


def get_cpu_mesh() -> Mesh:
    """Returns the mesh of all CPU devices: ``data`` over processes, ``model`` over the devices of each."""
    grid = np.empty((jax.process_count(), jax.local_device_count()), dtype=object)
    for device in jax.devices():
        grid[device.process_index, device.id % jax.local_device_count()] = device
    return mesh_of(grid)


def get_gpu_mesh(num_partitions: int) -> Mesh:
    """Returns the mesh of all GPUs, with ``model`` inside a process if ``num_partitions`` fits in one."""
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
    return mesh_of(grid)


def default_mesh(
    num_partitions: int | None,
    model_parallel_submesh: HardwareMesh | None = None,
    backend: str | None = None,
    ici_mesh_shape: HardwareMesh | None = None,
    dcn_mesh_shape: HardwareMesh | None = None,
) -> Mesh:
    """Chooses the mesh for all devices; the arguments are those of ``BasePartitioner``. CPUs ignore ``num_partitions``.

    Its axes are ``data`` and ``model``, and ``replica`` before them for several slices.

    Raises:
        ValueError: no tile is known for this kind of device and number of partitions.
        AssertionError: the tile does not fit the devices.
    """
    devices = jax.devices(backend)
    if ici_mesh_shape is not None and dcn_mesh_shape is not None:
        grid = mesh_utils.create_hybrid_device_mesh(ici_mesh_shape, dcn_mesh_shape, devices=devices)
        return mesh_of(grid, ("replica", *AXES))
    if model_parallel_submesh:
        return get_mesh(model_parallel_submesh, backend=backend)

    last = devices[-1]
    if last.platform == "cpu":
        return get_cpu_mesh()
    if last.platform == "gpu":
        return get_gpu_mesh(num_partitions or 1)
    bounds = bounds_from_last_device(last)
    tile = known_tile(last.device_kind, bounds, num_partitions)
    if tile is None:
        raise ValueError(
            f"No default mesh for num_partitions={num_partitions} on {last.device_kind} with devices {bounds}: "
            f"set model_parallel_submesh to a tile (x, y, z, core) of {num_partitions} devices instead"
        )
    return get_mesh(tile, backend=backend)


_AxisEntry = str | tuple[str, ...] | None


@dataclasses.dataclass
class LocalChunkInfo:
    """The part of an array on this process: one slice for each dimension.

    Of the processes with the same part, the one whose ``replica_id`` is 0 writes it to checkpoints.
    """

    slice: tuple[slice, ...]
    replica_id: int


@dataclasses.dataclass
class DataLayout:
    """How a global batch of ``batch_size`` examples is divided among processes.

    This process reads shard ``shard_id``; it may be the first of those that read the same shard.
    """

    batch_size: int
    shard_id: int
    num_shards: int
    is_first_host_in_replica_set: bool


class LocalChunker:
    """Finds the part of an array that this process has, given the mesh of all processes.

    For each axis of the mesh, ``num_chunks`` has the number of processes along it and ``chunk_ids`` this one's
    position.
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
        """Returns the part of an array whose dimensions are divided along mesh axes, or not divided (None)."""
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
        """Returns the index of this process along the given mesh axes; the last axis varies fastest."""
        place = 0
        for axis in _as_axes(sharded_mesh_axes):
            place = place * self.num_chunks[axis] + self.chunk_ids[axis]
        return place

    def get_replica_id(self, sharded_mesh_axes: str | Collection[str | None]) -> int:
        """Returns the index of this process along all other mesh axes."""
        sharded = set(_as_axes(sharded_mesh_axes))
        return self.get_shard_id([axis for axis in self.mesh_axes if axis not in sharded])


def _as_axes(entry: str | Collection[str | None]) -> list[str]:
    return [entry] if isinstance(entry, str) else [axis for axis in entry if axis is not None]


def global_mesh_defined() -> bool:
    """Returns whether a mesh is set, as it is while a partitioned function is traced or called."""
    return not jax.sharding.get_abstract_mesh().empty


def with_sharding_constraint(x: Any, axis_resources: Any) -> Any:
    """Constrains the sharding of an array inside a partitioned function; does nothing on CPU or without a mesh."""
    if jax.devices()[0].platform == "cpu" or not global_mesh_defined():
        return x
    return jax.lax.with_sharding_constraint(x, axis_resources)


def host_local_array_to_global_array(arr_tree: Any, mesh: Mesh, pspecs: Any) -> Any:
    """Joins the processes' parts into global arrays; if a ``PartitionSpec`` is None, all have the same value."""
    specs = jax.tree.map(lambda spec: PartitionSpec() if spec is None else spec, pspecs, is_leaf=lambda x: x is None)
    return multihost_utils.host_local_array_to_global_array(arr_tree, mesh, specs)


class PjittedFnWithContext(Callable[..., Any]):
    """A jitted function that runs with its mesh and Flax's axis rules set."""

    def __init__(self, pjitted_fn: Any, partition_mesh: Mesh, logical_axis_rules: LogicalAxisRules = ()):
        self._pjitted_fn = pjitted_fn
        self._mesh = partition_mesh
        self._logical_axis_rules = logical_axis_rules

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        with self._context(args, kwargs):
            return self._pjitted_fn(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the function lowered for arguments of these shapes."""
        with self._context(args, kwargs):
            return self._pjitted_fn.lower(*args, **kwargs)

    @contextlib.contextmanager
    def _context(self, args: Any, kwargs: Any) -> Iterator[None]:
        # Inside another function's trace, jax does not allow setting a concrete mesh.
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        mesh = jax.sharding.use_abstract_mesh(self._mesh.abstract_mesh) if traced else jax.set_mesh(self._mesh)
        with mesh, flax_partitioning.axis_rules(self._logical_axis_rules):
            yield


def _shardings_of(mesh: Mesh, resources: Any) -> Any:
    """Converts partition specs to shardings; shardings and unspecified values are unchanged."""

    def sharding_of(entry: Any) -> Any:
        if entry is None or isinstance(entry, PartitionSpec):
            return NamedSharding(mesh, PartitionSpec() if entry is None else entry)
        return entry

    return jax.tree.map(sharding_of, resources, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))


PartitionedCallable = Callable[..., Any]
CompiledPartitionedCallable = Callable[..., Any]


class BasePartitioner(metaclass=abc.ABCMeta):
    """Divides data, parameters and computations among devices.

    Args:
        num_partitions: devices per model replica. Give this or ``model_parallel_submesh``, which is used if both are
            given.
        model_parallel_submesh: the tile of a replica, ``(x, y, z, core)``.
        params_on_devices: keep parameters in device memory, not on the host.
        backend: the name of a JAX backend.
        ici_mesh_shape: (replica, data, model) inside a slice, for jobs over several slices.
        dcn_mesh_shape: (replica, data, model) over slices; used only together with ``ici_mesh_shape``.

    Raises:
        ValueError: neither ``num_partitions`` nor ``model_parallel_submesh`` is given.
    """

    def __init__(
        self,
        num_partitions: int | None = None,
        model_parallel_submesh: HardwareMesh | None = None,
        params_on_devices: bool = True,
        backend: str | None = None,
        ici_mesh_shape: HardwareMesh | None = None,
        dcn_mesh_shape: HardwareMesh | None = None,
    ):
        if not num_partitions and not model_parallel_submesh:
            raise ValueError(f"{type(self).__name__}: set num_partitions or model_parallel_submesh")
        if num_partitions and model_parallel_submesh:
            logging.error(
                "num_partitions=%s is not read because model_parallel_submesh=%s is set",
                num_partitions,
                model_parallel_submesh,
            )
        if model_parallel_submesh is not None and len(model_parallel_submesh) != 4:
            logging.error("model_parallel_submesh=%s should be four numbers, x, y, z and core", model_parallel_submesh)
        self._num_partitions = num_partitions
        self._model_parallel_submesh = model_parallel_submesh
        self._params_on_devices = params_on_devices
        self._backend = backend
        self._ici_mesh_shape = ici_mesh_shape
        self._dcn_mesh_shape = dcn_mesh_shape
        self._data_axis: Any = ("replica", "data") if self._spans_slices else "data"

    @property
    def _spans_slices(self) -> bool:
        return self._ici_mesh_shape is not None and self._dcn_mesh_shape is not None

    @property
    def use_shardy_partitioner(self) -> bool:
        """Whether functions are partitioned by Shardy."""
        raise NotImplementedError(f"{type(self).__name__}.use_shardy_partitioner")

    @property
    def mesh(self) -> Mesh:
        """The mesh of all devices."""
        raise NotImplementedError(f"{type(self).__name__}.mesh")

    @property
    @abc.abstractmethod
    def _local_chunker(self) -> LocalChunker:
        """Finds this process' part of arrays and data."""

    @property
    def _data_axes(self) -> tuple[str, ...]:
        return (self._data_axis,) if isinstance(self._data_axis, str) else tuple(self._data_axis)

    @property
    def data_partition_spec(self) -> PartitionSpec:
        """The mesh axes that divide the first dimension of a batch."""
        return PartitionSpec(self._data_axis)

    @property
    def data_mesh_size(self) -> int:
        """The number of devices, or of tiles of them, with different examples."""
        return math.prod(self.mesh.shape[axis] for axis in self._data_axes)

    @property
    def data_shards(self) -> int:
        """The number of processes, or of groups of them, with different examples."""
        return math.prod(self._local_chunker.num_chunks[axis] for axis in self._data_axes)

    @property
    def data_shard_id(self) -> int:
        """The shard of the data that this process reads."""
        return self._local_chunker.get_shard_id(self._data_axis)

    def get_data_layout(self, batch_size: int | None = None, host_index: int | None = None) -> DataLayout:
        """Returns how a global batch, the smallest possible by default, is divided among processes.

        Raises:
            ValueError: the batch cannot be divided evenly.
            NotImplementedError: ``host_index`` is given.
        """
        if host_index is not None:
            raise NotImplementedError("get_data_layout knows the layout of this process only; leave host_index out")
        if self._data_axis is None:
            return DataLayout(batch_size or 1, 0, 1, jax.process_index() == 0)
        size = batch_size or self.data_mesh_size
        for divisor, meaning in ((self.data_mesh_size, "data parallelism of the mesh"), (self.data_shards, "shards")):
            if size % divisor:
                raise ValueError(
                    f"Batch size {size} is not a multiple of {divisor}, the {meaning} (mesh {dict(self.mesh.shape)})"
                )
        return DataLayout(
            batch_size=int(size),
            shard_id=self.data_shard_id,
            num_shards=self.data_shards,
            is_first_host_in_replica_set=self._local_chunker.get_replica_id(self._data_axis) == 0,
        )

    def get_local_chunk_info(self, global_shape: tuple[int, ...], mesh_axes: Sequence[Any]) -> LocalChunkInfo:
        """Returns the part of an array on this process; see ``LocalChunker.get_local_chunk_info``."""
        return self._local_chunker.get_local_chunk_info(global_shape, mesh_axes)

    @property
    def params_on_devices(self) -> bool:
        """Whether parameters are kept in device memory."""
        return self._params_on_devices

    @params_on_devices.setter
    def params_on_devices(self, value: bool) -> None:
        self._params_on_devices = value

    def move_params_to_devices(self, train_state: TrainState, train_state_axes: TrainState) -> TrainState:
        """Copies a state from host memory to the devices, divided by ``train_state_axes``."""
        if jax.process_count() > 1:
            return host_local_array_to_global_array(train_state, self.mesh, train_state_axes)
        return jax.device_put(train_state, _shardings_of(self.mesh, train_state_axes))

    def get_logical_axes(self, train_state: TrainState) -> TrainState:
        """Returns the state with logical axis names as leaves; in this class, None for every leaf."""
        return train_state.restore_state(jax.tree.map(lambda _: None, train_state.state_dict()))

    def get_mesh_axes(self, train_state: TrainState) -> TrainState:
        """Returns the state with ``PartitionSpec`` or None as leaves."""
        raise NotImplementedError(f"{type(self).__name__}.get_mesh_axes")

    @abc.abstractmethod
    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> PartitionedCallable:
        """Makes a function that runs on all devices of the mesh.

        The resources are trees, or their prefixes, of ``PartitionSpec`` for arguments and result; None means
        replicated.
        """

    @abc.abstractmethod
    def compile(self, partitioned_fn: Any, *args: Any) -> CompiledPartitionedCallable:
        """Compiles a partitioned function for arguments of these shapes."""


class BasePjitPartitioner(BasePartitioner):
    """Partitions functions with ``jax.jit`` over the mesh that ``default_mesh`` chooses."""

    _logical_axis_rules: LogicalAxisRules = ()

    @functools.cached_property
    def _local_chunker(self) -> LocalChunker:
        return LocalChunker(self.mesh)

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The mesh of all devices; ``partitioning.default_mesh`` is looked up when it is first asked for."""
        return default_mesh(
            self._num_partitions,
            self._model_parallel_submesh,
            self._backend,
            self._ici_mesh_shape,
            self._dcn_mesh_shape,
        )

    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> PjittedFnWithContext:
        """Makes a function that runs on all devices of the mesh; see ``BasePartitioner.partition``."""
        jitted = jax.jit(
            fn,
            in_shardings=_shardings_of(self.mesh, in_axis_resources),
            out_shardings=_shardings_of(self.mesh, out_axis_resources),
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
        )
        return PjittedFnWithContext(jitted, self.mesh, self._logical_axis_rules)

    def compile(self, partitioned_fn: PjittedFnWithContext, *args: Any) -> CompiledPartitionedCallable:
        """Compiles a partitioned function for arguments of these shapes."""
        return partitioned_fn.lower(*args).compile()


class PjitPartitioner(BasePjitPartitioner):
    """Partitions by logical axis names.

    Only arguments and results are laid out; XLA divides the computation (GSPMD: Xu et al. 2021, arXiv:2105.04663). It
    takes what ``BasePartitioner`` takes, and ``logical_axis_rules``: pairs of an axis name and ``data``, ``model`` or
    None, of which the first usable one applies; by default ``standard_logical_axis_rules()``.
    """

    def __init__(
        self,
        num_partitions: int | None = None,
        model_parallel_submesh: HardwareMesh | None = None,
        params_on_devices: bool = True,
        backend: str | None = None,
        ici_mesh_shape: HardwareMesh | None = None,
        dcn_mesh_shape: HardwareMesh | None = None,
        logical_axis_rules: LogicalAxisRules | None = None,
    ):
        super().__init__(
            num_partitions, model_parallel_submesh, params_on_devices, backend, ici_mesh_shape, dcn_mesh_shape
        )
        rules = standard_logical_axis_rules() if logical_axis_rules is None else logical_axis_rules
        if self._spans_slices:
            rules = [(name, ("replica", "data") if name == "batch" else axis) for name, axis in rules]
        self._logical_axis_rules = tuple(rules)
        batch_spec = flax_partitioning.logical_to_mesh_axes(["batch"], self._logical_axis_rules)
        self._data_axis = batch_spec[0] if batch_spec else None
        self._use_shardy_partitioner = bool(jax.config.values["jax_use_shardy_partitioner"])

    @property
    def use_shardy_partitioner(self) -> bool:
        """Whether functions are partitioned by Shardy: JAX's setting when this partitioner was made."""
        return self._use_shardy_partitioner

    @property
    def logical_axis_rules(self) -> LogicalAxisRules:
        """The rules from axis names to mesh axes."""
        return self._logical_axis_rules

    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> PjittedFnWithContext:
        """Makes a function that runs on all devices of the mesh; see ``BasePartitioner.partition``.

        Raises:
            ValueError: JAX was set to use another partitioner after this one was made.
        """
        now = bool(jax.config.values["jax_use_shardy_partitioner"])
        if now != self._use_shardy_partitioner:
            raise ValueError(
                f"jax_use_shardy_partitioner was {self._use_shardy_partitioner} when this partitioner was made and is "
                f"{now} now; set it before"
            )
        return super().partition(fn, in_axis_resources, out_axis_resources, static_argnums, donate_argnums)

    def get_logical_axes(self, train_state: TrainState) -> TrainState:
        """Returns the state with logical axis names, or None, as leaves."""
        return train_state.as_logical_axes()

    def get_mesh_axes(self, train_state: TrainState) -> TrainState:
        """Returns the state with ``PartitionSpec`` or None as leaves.

        Raises:
            ValueError: an axis name has no rule.
        """
        logical = self.get_logical_axes(train_state)
        names_by_path = traverse_util.flatten_dict(logical.state_dict(), keep_empty_nodes=True, sep="/")
        specs = {path: self._mesh_axes_of(path, names) for path, names in names_by_path.items()}
        return logical.restore_state(traverse_util.unflatten_dict(specs, sep="/"))

    def _mesh_axes_of(self, path: str, names: Any) -> Any:
        if names is None or names is traverse_util.empty_node:
            return names
        try:
            return flax_partitioning.logical_to_mesh_axes(names, self._logical_axis_rules)
        except ValueError as error:
            raise ValueError(
                f"{path}: its axis names {tuple(names)} have no mesh axes by logical_axis_rules ({error})"
            ) from error
