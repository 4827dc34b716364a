"""The checkpoint that a run starts from: which binding names it, at what step it is, whether it can be read here."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from t5x_harness.resolve.gin_config import BindingKey, GinConfig
from t5x_harness.spec import Mode, Severity

__all__ = ["Problem", "StartPoint", "checkpoint_steps", "find_start", "stored_shapes"]

_STEP = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/*$")
_REMOTE = re.compile(r"^[a-z][a-z0-9+.-]*://|^/(?:gcs|cns|bigstore)/")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Why the checkpoint cannot be what the config means."""

    code: str
    severity: Severity
    message: str
    fix: str


@dataclasses.dataclass(frozen=True)
class StartPoint:
    """The checkpoint that a config names.

    Attributes:
      key: the binding that holds the path.
      path: the checkpoint; None where the run starts from scratch.
      mode: T5X's restore mode.
      step: the step that the path names, or the latest one in the folder; None if unknown.
      reachable: whether it can be read here.
      transforms: whether the config renames or drops parts of it while restoring.
      problem: what is wrong with it.
    """

    key: BindingKey | None = None
    path: str | None = None
    mode: str = "specific"
    step: int | None = None
    reachable: bool = False
    transforms: bool = False
    problem: Problem | None = None


def find_start(config: GinConfig) -> StartPoint:
    """What the config's RestoreCheckpointConfig comes to."""
    if config.mode is Mode.TRAIN:
        restore = getattr(config.build("checkpoint_cfg"), "restore", None)
    else:
        restore = config.build("restore_checkpoint_cfg")
    if restore is None or not getattr(restore, "path", None):
        return StartPoint()
    key = config.find("path", "RestoreCheckpointConfig")
    key = config.owner(key) if key else None
    paths = [restore.path] if isinstance(restore.path, str) else list(restore.path)
    path, mode = str(paths[0]), restore.mode
    transforms = bool(restore.assignment_map or restore.state_transformation_fns or restore.fallback_to_scratch)
    named = _STEP.search(path)
    step = int(named.group(1)) if named else None
    if _REMOTE.match(path):
        return StartPoint(key, path, mode, step, reachable=False, transforms=transforms)
    steps = checkpoint_steps(path)
    if mode != "specific" and steps:
        return StartPoint(key, path, mode, steps[-1], reachable=True, transforms=transforms)
    problem = _problem(path, mode, steps)
    exists = os.path.isdir(path) if mode == "specific" else bool(steps)
    return StartPoint(
        key, path, mode, step, reachable=exists and problem is None, transforms=transforms, problem=problem
    )


def _problem(path: str, mode: str, steps: list[int]) -> Problem | None:
    """CKP04 and CKP05: a path on this machine that cannot be meant."""
    if not os.path.exists(path):
        folder = os.path.dirname(path.rstrip("/"))
        near = checkpoint_steps(folder)
        if near:
            listed = ", ".join(f"checkpoint_{n}" for n in near[-5:])
            return Problem("CKP04", Severity.ERROR, f"there is no {path}; beside it are {listed}", "correct the step")
        return Problem(
            "CKP04",
            Severity.WARNING,
            f"{path} does not exist on this machine, so a stand-in takes its place here",
            "make sure that the path exists where the job runs",
        )
    if mode == "specific" and not _STEP.search(path) and steps:
        return Problem(
            "CKP05",
            Severity.ERROR,
            f"{path} is the folder of a run, and mode 'specific' needs one checkpoint",
            f"use {os.path.join(path, f'checkpoint_{steps[-1]}')}",
        )
    return None


def checkpoint_steps(folder: str) -> list[int]:
    """The steps of the checkpoints in a folder, ascending; empty if there is no such folder."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    return sorted(int(m.group(1)) for n in names if (m := re.fullmatch(r"checkpoint_(\d+)", n)))


def stored_shapes(path: str) -> dict[str, tuple[int, ...]] | None:
    """The shapes of a checkpoint's arrays by their names; None where it is not in orbax' layout."""
    state = Path(path) / "state"
    if not state.is_dir():
        return None
    import orbax.checkpoint as ocp
    from flax import traverse_util

    tree = ocp.PyTreeCheckpointer().metadata(state)
    tree = getattr(tree, "item_metadata", tree)
    tree = getattr(tree, "tree", tree)
    flat = traverse_util.flatten_dict(tree, sep="/")
    return {path: tuple(value.shape) for path, value in flat.items() if hasattr(value, "shape")}
