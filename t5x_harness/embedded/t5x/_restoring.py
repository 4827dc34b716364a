"""Restoring the contents of a checkpoint onto the devices: transformations, dtype, shape and sharding."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from flax import traverse_util
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t5x import state_utils

if TYPE_CHECKING:
    from t5x.checkpoints import RestoreStateTransformationFn


def sharding_on(mesh: Mesh, axes: PartitionSpec | None) -> NamedSharding:
    """Returns the sharding for partition axes; None means replicated."""
    return NamedSharding(mesh, PartitionSpec(None) if axes is None else axes)


def place(value: Any, sharding: NamedSharding, dtype: Any = None) -> Any:
    """Puts a value onto the devices; a ``jax.Array`` that is already there is returned unchanged."""
    if isinstance(value, jax.Array) and value.sharding.is_equivalent_to(sharding, value.ndim):
        return value
    array = np.asarray(value) if not isinstance(value, jax.Array) else value
    if dtype is not None:
        array = array.astype(jnp.dtype(dtype))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def check_shape(path: str, name: str, stored: tuple[int, ...], expected: Any, *, exact: bool) -> None:
    """Raises a ValueError if a stored leaf and the model's differ in shape, or only logs it unless ``exact``.

    T5X accepts optimizer state of any shape, which may work.
    """
    wanted = tuple(jnp.shape(expected))
    if tuple(stored) == wanted:
        return
    message = f"{name} has shape {tuple(stored)} in checkpoint {path} and {wanted} in the model"
    if exact:
        raise ValueError(message)
    logging.warning("%s; it is restored as it is", message)


def check_complete(path: str, wanted: Iterable[str], stored: Collection[str], fallback: Collection[str]) -> None:
    """Raises a ValueError that lists the missing leaves, each with the most similar name in the checkpoint."""
    missing = [name for name in wanted if name not in stored and name not in fallback]
    if not missing:
        return
    shown = missing[:10]
    lines = [f"Checkpoint {path} lacks {len(missing)} of the model's leaves:"]
    for name in shown:
        near = difflib.get_close_matches(name, stored, n=1)
        lines.append(f"  {name}" + (f" (it has {near[0]})" if near else ""))
    if len(missing) > len(shown):
        lines.append(f"  and {len(missing) - len(shown)} more")
    lines.append("Initialize them with fallback_state (RestoreCheckpointConfig.fallback_to_scratch = True).")
    raise ValueError("\n".join(lines))


def transform_for_restore(
    stored: Mapping[str, Any], target: Mapping[str, Any], functions: Sequence[RestoreStateTransformationFn]
) -> Any:
    for function in functions:
        stored = function(stored, target)
    return stored


@dataclasses.dataclass(frozen=True)
class StateReader:
    """Reads the leaves that a model needs.

    Attributes:
        folder: the folder of the checkpoint's state.
        mesh: the mesh to put arrays on.
        target: the model's state, flat.
        axes: the partition axes of each leaf, flat; None means replicated.
        restore_dtype: dtype of parameters. As in T5X, other replicated leaves, such as the step, are cast too.
    """

    folder: epath.Path
    mesh: Mesh
    target: Mapping[str, Any]
    axes: Mapping[str, Any]
    restore_dtype: Any

    def plan(self, functions: Sequence[RestoreStateTransformationFn]) -> dict[str, Any]:
        """Applies the transformations to the stored leaves; returns the model's leaves, flat.

        Leaves are metadata of stored arrays, as T5X shows it to transformations, or values that these put in. One that
        is to come from another path of the checkpoint is a ValueError.
        """
        stored = {name: _as_t5x_shows_it(leaf) for name, leaf in self._metadata.items()}
        origin = {id(leaf): name for name, leaf in stored.items()}
        target = traverse_util.unflatten_dict(dict(self.target), sep="/")
        tree = transform_for_restore(traverse_util.unflatten_dict(stored, sep="/"), target, functions)
        transformed = state_utils.flatten_state_dict(tree)
        planned = {name: leaf for name, leaf in transformed.items() if name in self.target}
        for name in transformed.keys() - planned.keys():
            logging.info("%s of the checkpoint is not in the model", name)
        moved = {}
        for name, leaf in planned.items():
            # A function may have copied the tree: a leaf under a name of the checkpoint then counts as that stored
            # leaf.
            source = origin.get(id(leaf), name if name in stored else "a copy of another leaf")
            if _is_stored(leaf) and source != name:
                moved[name] = source
        if moved:
            shown = ", ".join(f"{name} from {source}" for name, source in list(moved.items())[:5])
            raise ValueError(
                f"state_transformation_fns rename leaves of checkpoint {self.folder}: {shown}. T5X cannot rename "
                "leaves of a checkpoint in orbax layout: it looks for the new name in the file. Keep the names, or "
                "start from a checkpoint in T5X's own layout, whose leaves can be renamed"
            )
        return planned

    @functools.cached_property
    def _metadata(self) -> dict[str, Any]:
        stored = ocp.PyTreeCheckpointHandler(use_ocdbt=True).metadata(self.folder)
        return state_utils.flatten_state_dict(getattr(stored, "tree", stored))

    def check(self, planned: Mapping[str, Any], fallback: Mapping[str, Any]) -> None:
        """Raises a ValueError if leaves that the model needs are missing, or parameters have another shape."""
        unrestorable = [name for name, leaf in self.target.items() if leaf is None]
        if unrestorable:
            raise ValueError(
                f"The optimizer keeps no state for {unrestorable[0]} ({len(unrestorable)} such leaves), and T5X cannot "
                "restore such a state in orbax layout. Give every parameter an optimizer in MultiOptimizer"
            )
        check_complete(os.fspath(self.folder), self.target, planned, fallback)
        for name, leaf in planned.items():
            shape = tuple(self._metadata[name].shape) if _is_stored(leaf) else np.shape(leaf)
            exact = name.startswith("target/")
            check_shape(os.fspath(self.folder.parent), name, shape, self.target[name], exact=exact)

    def item(self, planned: Mapping[str, Any]) -> Any:
        """Returns the stored leaves of the plan, to request from orbax."""
        stored = {name: leaf for name, leaf in planned.items() if _is_stored(leaf)}
        args = {name: self._restore_args(name) for name in stored}
        return ocp.args.PyTreeRestore(
            item=traverse_util.unflatten_dict(stored, sep="/"),
            restore_args=traverse_util.unflatten_dict(args, sep="/"),
            partial_restore=True,
        )

    def _restore_args(self, name: str) -> ocp.RestoreArgs:
        axes = self.axes[name]
        if axes is None:
            return ocp.RestoreArgs(restore_type=np.ndarray)
        dtype = self.restore_dtype if name.startswith("target/") else None
        return ocp.ArrayRestoreArgs(sharding=sharding_on(self.mesh, axes), dtype=dtype)

    def complete(
        self, restored: Mapping[str, Any], planned: Mapping[str, Any], fallback: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the whole state on the devices: orbax's leaves, values in ``planned``, and flat ``fallback``."""
        read = state_utils.flatten_state_dict(restored)
        state = {}
        for name in self.target:
            if name in read:
                value = read[name]
            elif name in planned:
                value = planned[name]
            else:
                logging.warning("%s is not in checkpoint %s and starts from its initial value", name, self.folder)
                value = fallback[name]
            state[name] = place(value, sharding_on(self.mesh, self.axes[name]), self.restore_dtype)
        return traverse_util.unflatten_dict(state, sep="/")


def _as_t5x_shows_it(metadata: Any) -> ocp.metadata.tree.ValueMetadataEntry | None:
    """Hides shape and dtype, since functions that need them do not work with T5X. None is a leaf without a value."""
    if metadata is None:
        return None
    is_scalar = isinstance(metadata, ocp.metadata.value.ScalarMetadata)
    storage = getattr(metadata, "storage", None)
    return ocp.metadata.tree.ValueMetadataEntry(
        value_type="scalar" if is_scalar else "jax.Array",
        skip_deserialize=False,
        write_shape=None if storage is None else storage.write_shape,
    )


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, ocp.metadata.tree.ValueMetadataEntry)
