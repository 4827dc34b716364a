"""The names of checkpoint folders: which steps exist, and where."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import gin
from t5x._lazy import gfile

_TRAIN_DS_PREFIX = "train_ds"
_STEP_FOLDER = re.compile(r"checkpoint_(\d+)")


@gin.configurable
def get_checkpoint_prefix(prefix: str = "checkpoint") -> str:
    """Returns the prefix of the names of checkpoint folders."""
    return prefix


def all_steps(checkpoints_dir: str) -> Sequence[int]:
    """Returns the steps with a complete checkpoint in a folder, ascending; empty if there is no such folder."""
    folders = gfile.glob(os.path.join(checkpoints_dir, "checkpoint_*"))
    return _steps_of(folders)


def all_dataset_checkpoint_steps(checkpoints_dir: str) -> Sequence[int]:
    """Returns the steps whose checkpoint holds the state of the input pipeline, ascending."""
    files = gfile.glob(os.path.join(checkpoints_dir, "checkpoint_*", f"{_TRAIN_DS_PREFIX}-*"))
    return _steps_of(os.path.dirname(file) for file in files)


def latest_step(checkpoints_dir: str) -> int | None:
    """Returns the last step with a checkpoint, or None."""
    return max(all_steps(checkpoints_dir), default=None)


def get_checkpoint_dir(checkpoints_dir: str, step: int, step_format_fixed_length: int | None = None) -> str:
    """Returns the folder of a step's checkpoint, the step filled with zeros to ``step_format_fixed_length``."""
    number = str(step).zfill(step_format_fixed_length or 0)
    return os.path.join(checkpoints_dir, f"{get_checkpoint_prefix()}_{number}")


def get_step_from_checkpoint_dir(checkpoints_dir: str) -> tuple[str, int]:
    """Splits the folder of a checkpoint into the folder of all checkpoints and the step.

    Raises:
        ValueError: the name is not a checkpoint folder's.
    """
    parent, name = os.path.split(checkpoints_dir.rstrip("/"))
    prefix = f"{get_checkpoint_prefix()}_"
    number = name.removeprefix(prefix)
    if not name.startswith(prefix) or not number.isdecimal():
        raise ValueError(f"{checkpoints_dir!r} is not a checkpoint folder: its name should be {prefix}STEP")
    return parent, int(number)


def _steps_of(folders: Iterable[str]) -> Sequence[int]:
    matches = (_STEP_FOLDER.fullmatch(os.path.basename(folder.rstrip("/"))) for folder in folders)
    return sorted({int(match.group(1)) for match in matches if match})
