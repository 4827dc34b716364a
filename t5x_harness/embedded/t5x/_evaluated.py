"""Which checkpoints an evaluation covers, and which of them are done."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from t5x import checkpoints, utils
from t5x._errors import ConfigError
from t5x._lazy import tf

_STEP_AT_END = re.compile(r"(\d+)/?$")


def by_step(paths: Iterable[str]) -> list[str]:
    """Returns checkpoint paths in the order of their steps, such as ``.../checkpoint_100`` or ``.../model.ckpt-100``.

    Raises:
        ConfigError: a path does not end in a step.
    """

    def step(path: str) -> int:
        found = _STEP_AT_END.search(path)
        if found is None:
            raise ConfigError(
                f"the checkpoint path {path!r} does not end in a step, such as checkpoint_1000: give the path of one "
                "checkpoint, or set RestoreCheckpointConfig.mode to 'latest' or 'all'"
            )
        return int(found[1])

    return sorted(paths, key=step)


@dataclasses.dataclass(frozen=True)
class EvaluatedList:
    """A text file with the path of each evaluated checkpoint, one per line, so that none is evaluated twice."""

    path: str

    def exists(self) -> bool:
        """Returns whether any checkpoint was evaluated."""
        return bool(tf.io.gfile.exists(self.path))

    def read(self) -> set[str]:
        """Returns the paths."""
        if not self.exists():
            return set()
        with tf.io.gfile.GFile(self.path) as file:
            return set(file.read().split())

    def add(self, checkpoint: str) -> None:
        """Adds a path by rewriting the file, because not every file system can append."""
        lines = by_step(self.read() | {checkpoint})
        with tf.io.gfile.GFile(self.path, "w") as file:
            file.write("\n".join(lines))


def _all_checkpoints(restore_cfg: utils.RestoreCheckpointConfig) -> set[str]:
    """Returns the path of every checkpoint in the folders that a config with mode 'all' names."""
    folders = [restore_cfg.path] if isinstance(restore_cfg.path, str) else restore_cfg.path
    found: set[str] = set()
    for folder in folders:
        if not tf.io.gfile.isdir(folder):
            raise ConfigError(
                f"RestoreCheckpointConfig.path ({folder!r}) is not a folder, as it must be with mode 'all': give the "
                "folder that holds the checkpoints"
            )
        steps = checkpoints.all_steps(folder)
        found.update(checkpoints.get_checkpoint_dir(folder, step) for step in steps)
    return found


def checkpoints_to_evaluate(
    restore_cfg: utils.RestoreCheckpointConfig, evaluated: EvaluatedList
) -> tuple[utils.RestoreCheckpointConfig | None, list[str]]:
    """Returns the config to restore with, and the checkpoint paths that an interrupted evaluation has not done.

    Resuming makes sense in mode 'all' only; the mode is set to 'specific' once the paths are known.
    """
    if restore_cfg.mode == "all" and evaluated.exists():
        remaining = by_step(_all_checkpoints(restore_cfg) - evaluated.read())
        restore_cfg.mode = "specific"
        return restore_cfg, remaining
    found_cfg, paths = utils.get_first_valid_restore_config_and_paths([restore_cfg])
    return found_cfg, list(paths)
