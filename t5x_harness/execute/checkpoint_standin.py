"""Generated checkpoints with the shapes of the (shrunk) model, at the step that the config's path names.

A config that starts from ``gs://…/checkpoint_1000000`` cannot reach it here, and a shrunk model could not load it.
The stand-in has the real one's layout, so that restoring it is the real restore.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from flax import traverse_util
from t5x import adafactor, checkpoints, train_state

from t5x_harness.buckets.emulated import store
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.stored_tree import StoredArray
from t5x_harness.standins.checkpoints import CheckpointKind, write_legacy_checkpoint

_SPREAD = 0.05
_TARGET = "target/"
_PARAM_STATES = "state/param_states/"
_COMMITTED = "commit_success.txt"
_STEP = "state/step"

Renaming = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Given the train state's arrays by name, returns the checkpoint's."""


def write_standin(
    folder: epath.PathLike,
    step: int,
    shapes: StateShapes,
    partitioner: Any,
    *,
    kind: CheckpointKind = CheckpointKind.ORBAX,
    held: Renaming | None = None,
    written_in: Path | None = None,
) -> epath.Path:
    """Writes a checkpoint of small random parameters and an empty optimizer state.

    Args:
      folder: where ``checkpoint_<step>`` goes: a local folder, or one in a bucket, as ``gs://bucket/model``.
      step: the step to write into it.
      shapes: the train state, with the optimizer's part, as pretrained checkpoints have it.
      partitioner: the runtime's partitioner.
      kind: its layout, and whose optimizer state is written.
      held: renames the arrays, for a checkpoint that does not hold the train state's own.
      written_in: an empty folder to write it in, for a caller that moves it to its place when it is complete.

    Returns:
      The checkpoint's folder, once it is in its place.
    """
    here = store()
    # On the disk of the emulated Google Cloud: the same objects, without a request for each.
    place = epath.Path(written_in or (here.local(os.fspath(folder)) if here is not None else None) or folder)
    place.mkdir(parents=True, exist_ok=True)
    state = _filled(shapes.initializer.global_train_state_shape, step)
    if kind is CheckpointKind.ORBAX:
        manager = checkpoints.OrbaxCheckpointManagerInterface(os.fspath(place), state, partitioner)
        manager.save(state, [] if held is None else [_as_transformation(held)], force=True)
        manager.wait_until_finished()
        manager.close()
    else:
        in_bucket = os.fspath(folder).startswith("gs://")
        _write_legacy(place, step, state, partitioner, kind, held, in_bucket=in_bucket)
    return epath.Path(folder) / f"checkpoint_{step}"


def _filled(shapes: Any, step: int) -> Any:
    """Returns a train state with values in place of shapes."""
    random = np.random.default_rng(0)

    def fill(path: Any, leaf: Any) -> Any:
        return _values(jax.tree_util.keystr(path), leaf.shape, leaf.dtype, random)

    return jax.tree_util.tree_map_with_path(fill, shapes).replace_step(np.asarray(step, np.int32))


def _values(name: str, shape: tuple[int, ...], dtype: Any, random: np.random.Generator) -> np.ndarray[Any, Any]:
    if not jax.numpy.issubdtype(dtype, np.floating) or "param_states" in name:
        return np.zeros(shape, dtype)
    if "scale" in name:
        return np.ones(shape, dtype)
    return (random.standard_normal(shape, np.float32) * _SPREAD).astype(dtype)


def filled_arrays(arrays: Mapping[str, StoredArray], step: int) -> dict[str, Any]:
    """Returns the values that :func:`write_standin` writes for the arrays of a checkpoint, by their names in it."""
    random = np.random.default_rng(0)
    made = {name: _values(name, a.shape, jax.numpy.dtype(a.dtype), random) for name, a in arrays.items()}
    return made | {_STEP: np.asarray(step, np.int32)}


def _as_transformation(held: Renaming) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Turns the renaming into what T5X applies while it saves, to the state and to what it knows of each array."""

    def transform(state: Any, _: Any) -> tuple[Any, Any]:
        arrays = held(_flat(state))
        known = {name: types.SimpleNamespace(name=name.replace("/", ".")) for name in arrays}
        return traverse_util.unflatten_dict(arrays, sep="/"), traverse_util.unflatten_dict(known, sep="/")

    return transform


def _write_legacy(
    place: epath.Path,
    step: int,
    state: Any,
    partitioner: Any,
    kind: CheckpointKind,
    held: Renaming | None,
    *,
    in_bucket: bool,
) -> None:
    leaves = _leaves(state, partitioner)
    if kind is CheckpointKind.PUBLISHED:
        leaves = _of_adafactor(leaves, _leaves(_with_adafactor(state, step), partitioner))
    values = {n: np.asarray(leaf, np.float32) if n.startswith(_TARGET) else leaf for n, (leaf, _) in leaves.items()}
    apart = {name for name, (leaf, axes) in leaves.items() if axes is not None and hasattr(leaf, "shape")}
    if held is not None:
        values = dict(held(values))
        # T5X reads what is in the file itself for any array, and a folder's only for one that has partition axes.
        apart = {name for name, value in values.items() if name in apart or (name not in leaves and np.ndim(value) > 1)}
    checkpoint = place / f"checkpoint_{step}"
    write_legacy_checkpoint(checkpoint, values, apart, in_bucket=in_bucket)
    if in_bucket and kind is CheckpointKind.PUBLISHED:
        # Where T5X evaluates a checkpoint at gs://, orbax deletes the folders in it, or beside it, that have no such
        # file. Buckets of published models refuse that, and T5X goes on; emulated ones refuse nothing.
        for committed in (checkpoint, *(checkpoint / name.replace("/", ".") for name in apart)):
            (committed / _COMMITTED).write_bytes(b"")


def _leaves(state: Any, partitioner: Any) -> dict[str, tuple[Any, Any]]:
    """Returns a train state's values, each with its partition axes, by their names in a checkpoint."""
    values, axes = _flat(state.state_dict()), _flat(partitioner.get_mesh_axes(state).state_dict())
    return {name: (value, axes.get(name)) for name, value in values.items()}


def _flat(tree: Any) -> dict[str, Any]:
    flat: dict[str, Any] = traverse_util.flatten_dict(tree, keep_empty_nodes=True, sep="/")
    return flat


def _with_adafactor(state: Any, step: int) -> Any:
    """Returns the state's parameters with the optimizer of T5's model gin files."""
    optimizer = adafactor.Adafactor(logical_factor_rules=adafactor.standard_logical_factor_rules())

    def create(params: Any) -> Any:
        variables = {"params": params, "params_axes": state.params_axes}
        return train_state.FlaxOptimTrainState.create(optimizer, variables)

    return _filled(jax.eval_shape(create, state.params), step)


def _of_adafactor(own: dict[str, tuple[Any, Any]], theirs: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Returns a state's leaves with the optimizer state of another.

    What the config's optimizer has under the same names is kept: it is an Adafactor, too, whose settings may fit
    another model.
    """
    kept = {name: leaf for name, leaf in own.items() if not name.startswith(_PARAM_STATES)}
    for name, leaf in theirs.items():
        if name.startswith(_PARAM_STATES):
            kept[name] = own[name] if name in own and hasattr(own[name][0], "shape") else leaf
    return kept
