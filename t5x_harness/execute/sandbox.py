"""Moves what a run writes into the run's own folder, and fills in the paths that are given only when a job starts."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.execute.shrink import as_gin
from t5x_harness.plan.checkpoint_source import UNSET_CHECKPOINT
from t5x_harness.resolve.gin_config import GinConfig
from t5x_harness.spec import Change, Mode
from t5x_harness.standins.policy import Policy

__all__ = ["sandbox"]


def sandbox(config: GinConfig, model_dir: Path, workspace: Path, policy: Policy) -> list[Change]:
    """Binds the output folder, and gives required paths a value.

    Args:
      config: the parsed config.
      model_dir: where the run shall write.
      workspace: the run's folder.
      policy: whether anything is made up; if not, paths stay without a value.

    Returns:
      What was changed; ``%gin.REQUIRED`` stands for a path that nothing gave.
    """
    changes = []
    output = config.owner_of("model_dir" if config.mode is Mode.TRAIN else "output_dir")
    before = as_gin(config.value(output)) if config.is_bound(output) else "nothing"
    config.bind(output, str(model_dir))
    changes.append(Change(output.short, before, as_gin(str(model_dir)), "sandbox"))
    path = config.find("path", "RestoreCheckpointConfig")
    owner = config.owner(path) if path else None
    if policy is not Policy.OFF and owner and config.is_required(config.value(owner)):
        value = str(workspace / "standin" / UNSET_CHECKPOINT)
        changes.append(Change(owner.short, as_gin(config.value(owner)), as_gin(value), "standin"))
        config.bind(owner, value)
    return changes
