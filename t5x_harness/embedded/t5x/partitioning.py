"""Partitioning: the mesh of devices, what of an array lies where, and functions compiled for all devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import traverse_util
from flax.linen import partitioning as flax_partitioning
from jax.sharding import Mesh, PartitionSpec
from t5x._partitioning.axis_rules import AxisNames, LogicalAxisRules, standard_logical_axis_rules
from t5x._partitioning.base import BasePartitioner, CompiledPartitionedCallable, PartitionedCallable
from t5x._partitioning.chunks import DataLayout, LocalChunker, LocalChunkInfo
from t5x._partitioning.jitted import (
    PjittedFnWithContext,
    global_mesh_defined,
    host_local_array_to_global_array,
    shardings_of,
    with_sharding_constraint,
)
from t5x._partitioning.meshes import (
    HardwareMesh,
    bounds_from_last_device,
    default_mesh,
    get_coords,
    get_cpu_mesh,
    get_gpu_mesh,
    get_mesh,
)
from t5x.train_state import TrainState

__all__ = [
    "AxisNames",
    "BasePartitioner",
    "BasePjitPartitioner",
    "CompiledPartitionedCallable",
    "DataLayout",
    "HardwareMesh",
    "LocalChunkInfo",
    "LocalChunker",
    "LogicalAxisRules",
    "Mesh",
    "PartitionSpec",
    "PartitionedCallable",
    "PjitPartitioner",
    "PjittedFnWithContext",
    "bounds_from_last_device",
    "default_mesh",
    "get_coords",
    "get_cpu_mesh",
    "get_gpu_mesh",
    "get_mesh",
    "global_mesh_defined",
    "host_local_array_to_global_array",
    "standard_logical_axis_rules",
    "with_sharding_constraint",
]


class BasePjitPartitioner(BasePartitioner):
    """Partitions functions with ``jax.jit`` over the mesh that :func:`default_mesh` chooses."""

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

    @property
    def _context_rules(self) -> LogicalAxisRules:
        return ()

    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> PjittedFnWithContext:
        """Makes a function that runs on all devices of the mesh; see :meth:`BasePartitioner.partition`."""
        jitted = jax.jit(
            fn,
            in_shardings=shardings_of(self.mesh, in_axis_resources),
            out_shardings=shardings_of(self.mesh, out_axis_resources),
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
        )
        return PjittedFnWithContext(jitted, self.mesh, self._context_rules)

    def compile(self, partitioned_fn: PjittedFnWithContext, *args: Any) -> CompiledPartitionedCallable:
        """Compiles a partitioned function for arguments of these shapes."""
        return partitioned_fn.lower(*args).compile()


class PjitPartitioner(BasePjitPartitioner):
    """Partitions by logical axis names.

    Args:
        num_partitions: devices per model replica. Give this or ``model_parallel_submesh``.
        model_parallel_submesh: the tile of a replica, ``(x, y, z, core)``; its size must divide the devices.
        params_on_devices: keep parameters in device memory, not on the host.
        backend: name of a JAX backend.
        ici_mesh_shape: (replica, data, model) inside a slice, for jobs over several slices.
        dcn_mesh_shape: (replica, data, model) over slices.
        logical_axis_rules: pairs of an axis name and ``data``, ``model`` or None; the first that can be used counts.
            :func:`standard_logical_axis_rules` by default.
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
            num_partitions=num_partitions,
            model_parallel_submesh=model_parallel_submesh,
            params_on_devices=params_on_devices,
            backend=backend,
            ici_mesh_shape=ici_mesh_shape,
            dcn_mesh_shape=dcn_mesh_shape,
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
        """Whether functions are partitioned by Shardy, as JAX was set when this partitioner was made."""
        return self._use_shardy_partitioner

    @property
    def logical_axis_rules(self) -> LogicalAxisRules:
        """The rules from axis names to mesh axes."""
        return self._logical_axis_rules

    @property
    def _context_rules(self) -> LogicalAxisRules:
        return self._logical_axis_rules

    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> PjittedFnWithContext:
        """Makes a function that runs on all devices of the mesh; see :meth:`BasePartitioner.partition`.

        Raises:
            ValueError: JAX was set to use another partitioner since this one was made.
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
