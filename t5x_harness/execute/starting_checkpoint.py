"""The checkpoint that an executed run starts from: the user's own, or a stand-in where the run looks for it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from t5x_harness.buckets.addresses import bucket_and_name, is_remote
from t5x_harness.buckets.emulated import store
from t5x_harness.execute.checkpoint_standin import Renaming, filled_arrays, write_standin
from t5x_harness.execute.shrink import as_gin
from t5x_harness.execute.sizes import Shrunk
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.checkpoint_fit import checkpoint_names
from t5x_harness.plan.checkpoint_source import UNSET_CHECKPOINT, StartPoint, uses_orbax
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.stored_tree import StoredLayout, StoredTree, layout_of, read_tree
from t5x_harness.spec import Change, Reason, RunSpec, StandInPolicy
from t5x_harness.standins.checkpoints import CheckpointKind, kind_at


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
      spec: what to run.
    """

    config: GinConfig
    start: StartPoint
    step: int
    full: StateShapes | None
    shapes: StateShapes
    partitioner: Any
    spec: RunSpec

    def provide(self, workspace: Path, report: StageReport, *, in_bucket: bool) -> None:
        """Puts a checkpoint that fits the executed model where the config looks for it.

        Args:
          workspace: the run's folder.
          report: of the first stage that executes.
          in_bucket: whether a stand-in may lie in this run's buckets at the path that the config names.
        """
        start, config = self.start, self.config
        assert start.path
        if self.spec.settings.standins is StandInPolicy.OFF and not start.reachable:
            return
        if self._is_restored_as_it_is():
            report.fact("starts from", start.path)
            return
        kind, held = self._kind(), self._held()
        place = _place_in_bucket(start, self.step) if in_bucket else None
        written = write_standin(
            place or workspace / "standin", self.step, self.shapes, self.partitioner, kind=kind, held=held
        )
        if start.key is None:
            return
        before = start.path
        generated = f"a generated checkpoint at step {self.step}"
        if place is None:
            path = str(written if start.mode == "specific" else written.parent)
            value = path if isinstance(config.value(start.key), str) else [path]
            config.bind(start.key, value)
            generated = as_gin(value)
        if Path(before).name != UNSET_CHECKPOINT:
            report.changes.append(Change(start.key.short, as_gin(before), generated, Reason.STANDIN))
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
        return stored is not None and all(stored.shapes.get(path) == shape for path, shape in executed.items())

    def _kind(self) -> CheckpointKind:
        """Returns the layout of the checkpoint that is replaced: what is on disk, else what its path suggests."""
        if jax.process_count() > 1:
            return CheckpointKind.LEGACY  # orbax would wait for the other hosts, of which each has its own here
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
        arrays = {
            name: dataclasses.replace(array, shape=shrunk.shape(name, array.shape))
            for name, array in stored.arrays.items()
        }
        return lambda _: filled_arrays(arrays, self.step)

    def _stored(self) -> StoredTree | None:
        """Returns what the user's checkpoint holds; None if it cannot be read or is TensorFlow's."""
        if not self.start.reachable or self.start.checkpoint is None:
            return None
        try:
            tree = read_tree(self.start.checkpoint)
        except Exception:  # each library has its own exceptions; CKP27 has reported it, and the user goes on
            return None
        return tree if tree is not None and tree.layout is not StoredLayout.TENSORFLOW else None


def _sizes(shapes: StateShapes) -> Mapping[str, tuple[int, ...]]:
    return {leaf.path: leaf.shape for leaf in shapes.parameters}


def _place_in_bucket(start: StartPoint, step: int) -> str | None:
    """Clears the very path that the config names, and returns the folder for a stand-in there.

    Returns None if the path is in no bucket here.
    """
    here = store()
    path = start.path.rstrip("/") if start.path else ""
    folder, name = (path, f"checkpoint_{step}") if start.mode != "specific" else path.rsplit("/", 1)
    local = here.local(f"{folder}/{name}") if here is not None else None
    if local is None or name != f"checkpoint_{step}" or start.others:
        return None
    if local.exists():
        _remove(f"{folder}/{name}", local)
    local.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _remove(address: str, local: Path) -> None:
    """Removes the run's copy of a checkpoint from its bucket in a way that clears TensorFlow's cache, too.

    TensorFlow caches an object's size for some seconds, and fails to read an object that has shrunk meanwhile. The
    user's code, or an earlier run in this process, may have read the checkpoint; TensorFlow forgets what it removes
    itself. Files are truncated first, because the server reads a file that it has not seen before it removes it.
    """
    import tensorflow as tf

    found = bucket_and_name(address)
    assert found is not None
    for path in local.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    with contextlib.suppress(tf.errors.OpError):  # for example because a fault was injected
        tf.io.gfile.rmtree(f"gs://{'/'.join(found)}")
    shutil.rmtree(local, ignore_errors=True)
