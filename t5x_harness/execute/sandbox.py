"""Moves what a run writes into the run's own folder, and fills in the paths that are given only when a job starts."""

from __future__ import annotations

import os
from pathlib import Path

from t5x_harness.execute.shrink import as_gin
from t5x_harness.plan.checkpoint_source import UNSET_CHECKPOINT, checkpoint_steps
from t5x_harness.resolve.gin_config import BindingKey, GinConfig
from t5x_harness.spec import Change, Mode

__all__ = ["earlier_checkpoint", "output_binding", "sandbox"]


def output_binding(config: GinConfig) -> BindingKey:
    """The entry point's parameter for the folder that it writes into."""
    return BindingKey("", config.entry, "model_dir" if config.mode is Mode.TRAIN else "output_dir")


def sandbox(config: GinConfig, model_dir: Path, workspace: Path) -> list[Change]:
    """Binds the output folder, and gives required paths a value.

    Args:
      config: the parsed config.
      model_dir: where the run shall write.
      workspace: the run's folder.

    Returns:
      What was changed; ``%gin.REQUIRED`` stands for a path that nothing gave.
    """
    changes = []
    output = config.owner(output_binding(config))
    before = as_gin(config.value(output)) if config.is_bound(output) else "nothing"
    config.bind(output, str(model_dir))
    changes.append(Change(output.short, before, as_gin(str(model_dir)), "sandbox"))
    path = config.find("path", "RestoreCheckpointConfig")
    owner = config.owner(path) if path else None
    if owner and config.is_required(config.value(owner)):
        value = str(workspace / "standin" / UNSET_CHECKPOINT)
        changes.append(Change(owner.short, as_gin(config.value(owner)), as_gin(value), "standin"))
        config.bind(owner, value)
    return changes


def earlier_checkpoint(config: GinConfig) -> str | None:
    """A checkpoint in the config's own output folder: T5X would go on from it, whatever the config says."""
    value = config.value(config.owner(output_binding(config)))
    steps = checkpoint_steps(value) if config.mode is Mode.TRAIN and isinstance(value, str) else []
    return os.path.join(value, f"checkpoint_{steps[-1]}") if steps else None
