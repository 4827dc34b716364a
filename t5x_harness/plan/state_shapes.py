"""The shapes and shardings of a run's train state, without arrays, and how the slice's hosts share the run's data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from t5x import utils

from t5x_harness.plan.arrays import Leaf
from t5x_harness.slices.emulated_mesh import device_numbers
from t5x_harness.slices.slice import Slice


@dataclasses.dataclass(frozen=True)
class StateShapes:
    """A train state as shapes.

    Attributes:
      initializer: the TrainStateInitializer of T5X that made it.
      leaves: its arrays.
      empty: the names under which it holds None because the optimizer keeps no such state.
    """

    initializer: Any
    leaves: tuple[Leaf, ...]
    empty: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[Leaf, ...]:
        """The arrays of the model."""
        return tuple(leaf for leaf in self.leaves if leaf.path.startswith("target/"))

    @property
    def optimizer(self) -> tuple[Leaf, ...]:
        """The arrays that the optimizer keeps."""
        return tuple(leaf for leaf in self.leaves if leaf.path.startswith("state/param_states/"))

    @property
    def other(self) -> tuple[Leaf, ...]:
        """The step, and the mutable collections if the model has any."""
        known = {leaf.path for leaf in (*self.parameters, *self.optimizer)}
        return tuple(leaf for leaf in self.leaves if leaf.path not in known)

    @property
    def parameters_first(self) -> tuple[Leaf, ...]:
        """All arrays, in the order in which they are reported."""
        return (*self.parameters, *self.optimizer, *self.other)

    def with_parameters_as(self, dtype: str) -> StateShapes:
        """Returns the state after a restore that casts floating-point parameters to the named type."""
        kind = np.dtype(dtype)
        cast = (
            dataclasses.replace(leaf, dtype=kind)
            if leaf.path.startswith("target/") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
            else leaf
            for leaf in self.leaves
        )
        return dataclasses.replace(self, leaves=tuple(cast))

    def device_bytes(self, mesh: Mapping[str, int]) -> int:
        """Returns the bytes of the whole state on each device."""
        return sum(leaf.device_bytes(mesh) for leaf in self.leaves)


def model_inputs(
    model: Any, lengths: Mapping[str, int], batch: int, pack: bool
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Returns the shapes and types of the model's inputs, as its feature converter defines them.

    Raises:
      Exception: the converter refuses these lengths.
    """
    converter = model.FEATURE_CONVERTER_CLS(pack=pack)
    features = converter.MODEL_FEATURES
    wanted = converter.get_model_feature_lengths(lengths)
    packing = getattr(converter, "PACKING_FEATURE_DTYPES", None) or {}
    shapes: dict[str, tuple[int, ...]] = {name: (batch, length) for name, length in wanted.items()}
    types = {}
    for name in wanted:
        dtype = getattr(features.get(name), "dtype", None) or packing.get(name) or "int32"
        types[name] = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    return shapes, types


def state_shapes(
    model: Any,
    partitioner: Any,
    inputs: tuple[Mapping[str, tuple[int, ...]], Mapping[str, Any]],
    *,
    with_optimizer: bool,
    initializer_cls: Any = None,
) -> StateShapes:
    """Traces the model's initialization for shapes only.

    Args:
      model: T5X's model.
      partitioner: T5X's partitioner on the slice's mesh.
      inputs: the result of :func:`model_inputs`.
      with_optimizer: whether the state includes the optimizer's, as in training.
      initializer_cls: the config's own TrainStateInitializer, if it has one.
    """
    initializer = (initializer_cls or utils.TrainStateInitializer)(
        optimizer_def=model.optimizer_def if with_optimizer else None,
        init_fn=model.get_initial_variables,
        input_shapes=inputs[0],
        input_types=inputs[1],
        partitioner=partitioner,
    )
    shapes = initializer.global_train_state_shape
    axes = _flat(initializer.train_state_axes)
    names = _flat(partitioner.get_logical_axes(shapes))
    leaves, flat = [], _flat(shapes)
    for path, value in flat.items():
        if hasattr(value, "shape"):
            spec, logical = (tuple(known.get(path) or ()) for known in (axes, names))
            leaves.append(Leaf(path, tuple(value.shape), np.dtype(value.dtype), spec, logical))
    return StateShapes(initializer, tuple(leaves), tuple(path for path, value in flat.items() if value is None))


def _flat(state: Any) -> dict[str, Any]:
    """Returns a train state's values by their names in a checkpoint."""

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, jax.sharding.PartitionSpec)

    tree = jax.tree.map(lambda x: x, dict(state.state_dict()), is_leaf=is_leaf)
    flat: dict[str, Any] = traverse_util.flatten_dict(tree, keep_empty_nodes=False, sep="/")
    return flat


@dataclasses.dataclass(frozen=True)
class DataLayout:
    """The division of a batch on the slice.

    Attributes:
      positions: the number of parts into which devices divide a batch: the size of the mesh's data axes.
      shards: the number of parts that the hosts read: SeqIO's shards.
      hosts: the number of hosts in the slice; hosts that share a part read the same examples.
    """

    positions: int
    shards: int
    hosts: int

    @property
    def hosts_per_shard(self) -> int:
        """The number of hosts that read the same part of the data."""
        return self.hosts // self.shards


def data_layout(partitioner: Any, slice_: Slice) -> DataLayout:
    """Returns the data layout that T5X's partitioner has on the slice.

    T5X itself cannot be asked: here one process owns all devices and would read everything.

    Args:
      partitioner: T5X's partitioner, whose mesh consists of CPU devices in the order of the slice's.
      slice_: the slice.
    """
    mesh = partitioner.mesh
    (axes,) = tuple(partitioner.data_partition_spec) or (None,)  # None if the axis rules leave batches whole
    on_first_host = np.array([place.host for place in slice_.coordinates])[device_numbers(mesh)] == 0
    local = dict(zip(mesh.axis_names, (len(set(places)) for places in np.nonzero(on_first_host)), strict=True))
    sizes = {axis: int(mesh.shape[axis]) for axis in ((axes,) if isinstance(axes, str) else axes or ())}
    return DataLayout(
        positions=math.prod(sizes.values()),
        shards=math.prod(size // local[axis] for axis, size in sizes.items()),
        hosts=slice_.hosts,
    )
