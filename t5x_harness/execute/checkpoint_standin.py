"""Made-up checkpoints: the shapes of the (shrunken) model at the step that the config's path names.

A config that starts from ``gs://…/checkpoint_1000000`` cannot reach it here, and a shrunken model could not load it.
The stand-in is written by the runtime's own checkpointer, so that restoring it is the real restore.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from t5x import checkpoints

from t5x_harness.plan.state_shapes import StateShapes

__all__ = ["write_standin"]

_SPREAD = 0.05


def write_standin(folder: Path, step: int, shapes: StateShapes, partitioner: Any, *, use_orbax: bool = True) -> Path:
    """Writes a checkpoint of small random parameters and an empty optimizer state.

    Args:
      folder: where ``checkpoint_<step>`` goes.
      step: the step to write into it.
      shapes: the train state, with the optimizer's part, as pretrained checkpoints have it.
      partitioner: the runtime's partitioner.
      use_orbax: False for configs that still use T5X's legacy checkpointer.

    Returns:
      The checkpoint's folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    initializer = shapes.initializer

    def fill(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if not np.issubdtype(leaf.dtype, np.floating) or "param_states" in name:
            return np.zeros(leaf.shape, leaf.dtype)
        if "scale" in name:
            return np.ones(leaf.shape, leaf.dtype)
        return (random.standard_normal(leaf.shape, np.float32) * _SPREAD).astype(leaf.dtype)

    state = jax.tree_util.tree_map_with_path(fill, initializer.global_train_state_shape)
    state = state.replace_step(np.asarray(step, np.int32))
    if use_orbax:
        manager = checkpoints.OrbaxCheckpointManagerInterface(str(folder), state, partitioner)
        manager.save(state, force=True)
        manager.wait_until_finished()
        manager.close()
    else:
        checkpoints.Checkpointer(state, partitioner, str(folder)).save(state)
    return folder / f"checkpoint_{step}"
