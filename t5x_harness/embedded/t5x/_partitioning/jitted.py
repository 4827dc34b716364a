"""Functions compiled for all devices of a mesh, and the arrays they take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable  # noqa: UP035 (as a base class, this one is generic)

import jax
from flax.linen import partitioning as flax_partitioning
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t5x._partitioning.axis_rules import LogicalAxisRules
from t5x._shown_as import shown_as


@shown_as("t5x.partitioning")
def global_mesh_defined() -> bool:
    """Returns whether a mesh is set, as it is while a partitioned function is traced or called."""
    return not jax.sharding.get_abstract_mesh().empty


@shown_as("t5x.partitioning")
def with_sharding_constraint(x: Any, axis_resources: Any) -> Any:
    """Fixes how an array is divided inside a partitioned function; leaves it alone on CPU and without a mesh.

    Args:
        x: the array.
        axis_resources: a ``PartitionSpec``.
    """
    if jax.devices()[0].platform == "cpu" or not global_mesh_defined():
        return x
    return jax.lax.with_sharding_constraint(x, axis_resources)


@shown_as("t5x.partitioning")
def host_local_array_to_global_array(arr_tree: Any, mesh: Mesh, pspecs: Any) -> Any:
    """Joins what the processes hold into global arrays.

    Args:
        arr_tree: arrays of this process.
        mesh: the mesh over all processes.
        pspecs: a tree, or a prefix of it, of ``PartitionSpec``; None where all processes hold the same.
    """
    specs = jax.tree.map(lambda spec: PartitionSpec() if spec is None else spec, pspecs, is_leaf=lambda x: x is None)
    return multihost_utils.host_local_array_to_global_array(arr_tree, mesh, specs)


@shown_as("t5x.partitioning")
class PjittedFnWithContext(Callable[..., Any]):
    """A jitted function that runs with its mesh and axis rules set.

    Args:
        pjitted_fn: what ``jax.jit`` returned.
        partition_mesh: the mesh to set.
        logical_axis_rules: the rules to set for Flax.
    """

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
        # Inside another function's trace jax allows no concrete mesh to be set.
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        mesh = jax.sharding.use_abstract_mesh(self._mesh.abstract_mesh) if traced else jax.set_mesh(self._mesh)
        with mesh, flax_partitioning.axis_rules(self._logical_axis_rules):
            yield


def shardings_of(mesh: Mesh, resources: Any) -> Any:
    """Turns partition specs into shardings; shardings and unspecified values stay."""

    def sharding_of(entry: Any) -> Any:
        if entry is None or isinstance(entry, PartitionSpec):
            return NamedSharding(mesh, PartitionSpec() if entry is None else entry)
        return entry

    return jax.tree.map(sharding_of, resources, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))
