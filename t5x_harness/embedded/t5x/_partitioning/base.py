"""What every partitioner offers, and how a batch is divided by it."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import logging
from jax.sharding import Mesh, PartitionSpec
from t5x._partitioning.chunks import DataLayout, LocalChunker, LocalChunkInfo
from t5x._partitioning.jitted import host_local_array_to_global_array, shardings_of
from t5x._partitioning.meshes import HardwareMesh
from t5x._shown_as import shown_as
from t5x.train_state import TrainState

PartitionedCallable = Callable[..., Any]
CompiledPartitionedCallable = Callable[..., Any]


@shown_as("t5x.partitioning")
class BasePartitioner(metaclass=abc.ABCMeta):
    """Divides data, parameters and computations among devices.

    Args:
        num_partitions: devices per model replica. Give this or ``model_parallel_submesh``.
        model_parallel_submesh: the tile of a replica, ``(x, y, z, core)``.
        params_on_devices: keep parameters in device memory, not on the host.
        backend: name of a JAX backend.
        ici_mesh_shape: (replica, data, model) inside a slice, for jobs over several slices.
        dcn_mesh_shape: (replica, data, model) over slices.

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
        """How the first dimension of a batch is divided."""
        return PartitionSpec(self._data_axis)

    @property
    def data_mesh_size(self) -> int:
        """Number of devices, or tiles of them, with different examples."""
        return math.prod(self.mesh.shape[axis] for axis in self._data_axes)

    @property
    def data_shards(self) -> int:
        """Number of processes, or groups of them, with different examples."""
        return math.prod(self._local_chunker.num_chunks[axis] for axis in self._data_axes)

    @property
    def data_shard_id(self) -> int:
        """Which shard of the data this process reads."""
        return self._local_chunker.get_shard_id(self._data_axis)

    def get_data_layout(self, batch_size: int | None = None, host_index: int | None = None) -> DataLayout:
        """Returns how a global batch is divided among processes.

        Args:
            batch_size: examples in the global batch; the smallest possible by default.
            host_index: must be None.

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
        """Returns the part of an array on this process; see :meth:`LocalChunker.get_local_chunk_info`."""
        return self._local_chunker.get_local_chunk_info(global_shape, mesh_axes)

    @property
    def params_on_devices(self) -> bool:
        """Whether parameters are kept in device memory."""
        return self._params_on_devices

    @params_on_devices.setter
    def params_on_devices(self, value: bool) -> None:
        self._params_on_devices = value

    def move_params_to_devices(self, train_state: TrainState, train_state_axes: TrainState) -> TrainState:
        """Copies a state from host memory to the devices, divided as ``train_state_axes`` says."""
        if jax.process_count() > 1:
            return host_local_array_to_global_array(train_state, self.mesh, train_state_axes)
        return jax.device_put(train_state, shardings_of(self.mesh, train_state_axes))

    def get_logical_axes(self, train_state: TrainState) -> TrainState:
        """Returns the state with logical axis names as leaves; here None for every leaf."""
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

        Args:
            fn: the function.
            in_axis_resources: trees, or prefixes of them, of ``PartitionSpec`` for the arguments; None is replicated.
            out_axis_resources: the same for the result.
            static_argnums: arguments to compile anew for each value of.
            donate_argnums: arguments whose memory may be used for the result.
        """

    @abc.abstractmethod
    def compile(self, partitioned_fn: Any, *args: Any) -> CompiledPartitionedCallable:
        """Compiles a partitioned function for arguments of these shapes."""
