"""The checkpoint that an executed run starts from: the user's own, or a stand-in where the run looks for it.

A config that starts from ``gs://…/checkpoint_1000000`` cannot reach it here, and a shrunk model could not load it.
The stand-in has the shapes of the (shrunk) model, the step in the config's path, and the real one's layout, so
that restoring it is the real restore.
"""

import contextlib
import dataclasses
import os
import shutil
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from flax import traverse_util
from t5x import adafactor, checkpoints, train_state

from t5x_harness.buckets.addresses import bucket_and_name, is_remote
from t5x_harness.buckets.emulated import store
from t5x_harness.buckets.folders import COMMITTED
from t5x_harness.execute.sizes import Shrunk
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.checkpoint_fit import checkpoint_names
from t5x_harness.plan.checkpoint_source import UNSET_CHECKPOINT, StartPoint, uses_orbax
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.stored_tree import StoredLayout, StoredTree, layout_of, read_tree
from t5x_harness.slices.pod import Pod
from t5x_harness.spec import Change, Reason, RunSpec, StandInPolicy
from t5x_harness.standins.checkpoints import CheckpointKind, kind_at, write_legacy_checkpoint

_SPREAD = 0.05
_TARGET = "target/"
_PARAM_STATES = "state/param_states/"
_STEP = "state/step"

Renaming = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function from the train state's arrays by name to the checkpoint's."""


@dataclasses.dataclass(frozen=True)
class StartMaker:
    """Decides whether a run restores the config's own checkpoint, and writes a stand-in if not.

    Attributes:
      config: the parsed config, shrunk; its path is rebound if the stand-in cannot be put there.
      start: the checkpoint that the config names.
      step: the step that training starts from.
      full: the train state at full size; None if it is not known.
      shapes: the train state as it is executed.
      partitioner: the runtime's partitioner.
      spec: the run to execute.
      pod: the place of this process among the hosts of a pod, which write one checkpoint together; None if it is alone.
    """

    config: GinConfig
    start: StartPoint
    step: int
    full: StateShapes | None
    shapes: StateShapes
    partitioner: Any
    spec: RunSpec
    pod: Pod | None = None

    def provide(self, workspace: Path, report: StageReport, *, in_bucket: bool) -> None:
        """Puts a checkpoint that fits the executed model where the config looks for it.

        Args:
          workspace: the run's folder.
          report: the report of the first stage that executes.
          in_bucket: whether a stand-in may be written to this run's buckets, at the path that the config names.
        """
        start, config = self.start, self.config
        assert start.path
        if self.spec.settings.standins is StandInPolicy.OFF and not start.reachable:
            return
        if self._is_restored_as_it_is():
            report.fact("starts from", start.path)
            return
        kind, held = self._kind(), self._held()
        leads = self.pod is None or self.pod.index == 0
        place = _place_in_bucket(start, self.step, clear=leads) if in_bucket else None
        folder = epath.Path(place or workspace / "standin")
        written = folder / f"checkpoint_{self.step}"
        if leads or kind is CheckpointKind.ORBAX:  # which all hosts write together
            write_standin(folder, self.step, self.shapes, self.partitioner, kind=kind, held=held)
        if start.key is None:
            return
        before = start.path
        generated = f"a generated checkpoint at step {self.step}"
        if place is None:
            path = str(written if start.mode == "specific" else written.parent)
            value = path if isinstance(config.value(start.key), str) else [path]
            config.bind(start.key, value)
            generated = repr(value)
        if Path(before).name != UNSET_CHECKPOINT:
            report.changes.append(Change(start.key.short, repr(before), generated, Reason.STANDIN))
        else:
            report.not_checked.append(
                f"the checkpoint: the config leaves its path open, and a generated one at step {self.step} stands in "
                "for it"
            )
        if start.reachable:  # otherwise the plan has reported it
            report.not_checked.append(
                f"the values of {before}: generated ones in the shrunk model's shapes at step {self.step} stand in for "
                "them"
            )
        report.fact("starts from", f"a stand-in of the model's shapes at step {self.step}")

    def _is_restored_as_it_is(self) -> bool:
        """Returns whether the config's own checkpoint is restored, because the executed model has its size.

        This holds at full size, and for a checkpoint that a shrunk run has written.
        """
        start = self.start
        assert start.path
        if not start.reachable or (self.spec.settings.standins is StandInPolicy.ALL and is_remote(start.path)):
            return False
        executed = _sizes(self.shapes)
        if self.spec.settings.full_size or (self.full is not None and _sizes(self.full) == executed):
            return True
        stored = self._stored()
        shapes = {name: array.shape for name, array in stored.arrays.items()} if stored is not None else {}
        return stored is not None and all(shapes.get(path) == shape for path, shape in executed.items())

    def _kind(self) -> CheckpointKind:
        """Returns the layout of the replaced checkpoint: the one on disk, else the one that its path suggests."""
        if jax.process_count() > 1 and self.pod is None:
            return CheckpointKind.LEGACY  # orbax would wait for the other hosts, but each has its own here
        kind = kind_at(self.start.path or "", use_orbax=uses_orbax(self.config))
        seen = layout_of(self.start.checkpoint) if self.start.reachable and self.start.checkpoint else None
        if seen is StoredLayout.ORBAX:
            return CheckpointKind.ORBAX
        return CheckpointKind.LEGACY if seen is StoredLayout.T5X and kind is CheckpointKind.ORBAX else kind

    def _held(self) -> Renaming | None:
        """Returns the renaming for a checkpoint that the config transforms while restoring it, else None."""
        if not self.start.transforms or self.full is None:
            return None
        sources = checkpoint_names(self.start.restore, [leaf.path for leaf in self.shapes.leaves])
        stored = self._stored()
        if stored is None:
            return lambda arrays: {sources.get(name, name): value for name, value in arrays.items()}
        shrunk = Shrunk(self.full.leaves, self.shapes.leaves, sources)
        random = np.random.default_rng(0)
        filled = {
            name: _values(name, shrunk.shape(name, array.shape), jax.numpy.dtype(array.dtype), random)
            for name, array in stored.arrays.items()
        }
        return lambda _: filled | {_STEP: np.asarray(self.step, np.int32)}

    def _stored(self) -> StoredTree | None:
        """Returns the contents of the user's checkpoint; None if it cannot be read or is TensorFlow's."""
        if not self.start.reachable or self.start.checkpoint is None:
            return None
        try:
            tree = read_tree(self.start.checkpoint)
        except Exception:  # each library has its own exceptions; CKP27 has reported it
            return None
        return tree if tree is not None and tree.layout is not StoredLayout.TENSORFLOW else None


def _sizes(shapes: StateShapes) -> Mapping[str, tuple[int, ...]]:
    return {leaf.path: leaf.shape for leaf in shapes.parameters}


def _place_in_bucket(start: StartPoint, step: int, *, clear: bool) -> str | None:
    """Returns the folder for a stand-in at the exact path that the config names; None if the path is in no bucket here.

    Args:
      start: the checkpoint that the config names.
      step: the step that training starts from.
      clear: whether to remove what is there.
    """
    here = store()
    path = start.path.rstrip("/") if start.path else ""
    folder, name = (path, f"checkpoint_{step}") if start.mode != "specific" else path.rsplit("/", 1)
    local = here.local(f"{folder}/{name}") if here is not None else None
    if local is None or name != f"checkpoint_{step}" or start.others:
        return None
    if clear and local.exists():
        _remove(f"{folder}/{name}", local)
    local.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _remove(address: str, local: Path) -> None:
    """Removes the run's copy of a checkpoint from its bucket in a way that also clears TensorFlow's cache.

    TensorFlow caches an object's size for some seconds, and fails to read an object that has since shrunk. The
    user's code, or an earlier run in this process, may have read the checkpoint. TensorFlow forgets objects that it
    removes itself. Files are truncated first, because the server reads a file that it has not seen before it removes
    it.
    """
    import tensorflow as tf

    found = bucket_and_name(address)
    assert found is not None
    for path in local.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    with contextlib.suppress(tf.errors.OpError):  # for example, because a fault was injected
        tf.io.gfile.rmtree(f"gs://{'/'.join(found)}")
    shutil.rmtree(local, ignore_errors=True)


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
      folder: the parent of ``checkpoint_<step>``: a local folder, or one in a bucket, such as ``gs://bucket/model``.
      step: the step to write into it.
      shapes: the train state, including the optimizer's part, which pretrained checkpoints have.
      partitioner: the runtime's partitioner.
      kind: the kind of checkpoint, which determines its layout and its optimizer state.
      held: the function that renames the arrays, for a checkpoint that does not hold the train state's own.
      written_in: an empty folder to write it in, for a caller that moves it into place when it is complete.

    Returns:
      The checkpoint's folder, once it is in place.
    """
    here = store()
    # Written to the disk of the emulated Google Cloud: the same objects, without a request for each.
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


def _as_transformation(held: Renaming) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Turns the renaming into a function that T5X applies, while saving, to the state and to the arrays' metadata."""

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
        # T5X reads any array that is in the file itself, but a folder's only for an array with partition axes.
        apart = {name for name, value in values.items() if name in apart or (name not in leaves and np.ndim(value) > 1)}
    checkpoint = place / f"checkpoint_{step}"
    write_legacy_checkpoint(checkpoint, values, apart, in_bucket=in_bucket)
    if in_bucket and kind is CheckpointKind.PUBLISHED:
        # If T5X evaluates a checkpoint at gs://, orbax deletes the folders in it, or next to it, that have no such
        # file. Buckets of published models refuse that, and T5X continues; emulated ones refuse nothing.
        for committed in (checkpoint, *(checkpoint / name.replace("/", ".") for name in apart)):
            (committed / COMMITTED).write_bytes(b"")


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

    Entries that the config's optimizer has under the same names are kept: it is also an Adafactor, whose settings may
    fit another model.
    """
    kept = {name: leaf for name, leaf in own.items() if not name.startswith(_PARAM_STATES)}
    for name, leaf in theirs.items():
        if name.startswith(_PARAM_STATES):
            kept[name] = own[name] if name in own and hasattr(own[name][0], "shape") else leaf
    return kept
