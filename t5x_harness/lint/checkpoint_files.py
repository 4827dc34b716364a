"""The checkpoint that a config names, looked up on this machine: in a folder, or in a bucket that the user gave."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.lint.configured import ParameterValue, restore_config
from t5x_harness.lint.rule import Context
from t5x_harness.spec import Mode, StandInPolicy

MOST_NAMED = 5
"""Checkpoints beside a missing one that a message names."""


@dataclasses.dataclass(frozen=True)
class MissingCheckpoint:
    """A checkpoint that is not there.

    Attributes:
      path: what the config names.
      beside: the steps of the checkpoints in the same folder, ascending.
    """

    path: ParameterValue
    beside: tuple[int, ...]


def missing_checkpoint(context: Context) -> MissingCheckpoint | None:
    """Returns the checkpoint to start from if it is surely missing.

    That is known in a bucket of the user's, and in a folder of this machine that has other checkpoints. Otherwise the
    machine of the job may have it.
    """
    restore = restore_config(context)
    path = restore.parameter("path")
    if path is None or not isinstance(path.value, str) or not path.value:
        return None
    if context.program.mode is not Mode.INFER and restore.value("mode", "latest") != "specific":
        return None
    address = path.value.rstrip("/")
    local = _on_disk(context, address)
    if local is None or local.exists() or Path(f"{local}.index").exists():
        return None
    beside = _steps_in(local.parent)
    return MissingCheckpoint(path, beside) if beside or bucket_and_name(address) is not None else None


def _on_disk(context: Context, address: str) -> Path | None:
    """Returns where the path is on this machine; None if it is in a bucket that the user did not provide."""
    spec, found = context.program.spec, bucket_and_name(address)
    if found is None:
        return Path(address) if address.startswith("/") else None
    if spec.settings.gcs_root is None or spec.settings.gcs == "off" or spec.settings.standins is StandInPolicy.ALL:
        return None
    bucket = Path(os.path.abspath(os.path.join(spec.cwd, spec.settings.gcs_root)), found[0])
    return bucket / found[1] if bucket.is_dir() else None


def _steps_in(folder: Path) -> tuple[int, ...]:
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return ()
    return tuple(sorted(int(m[1]) for name in names if (m := re.fullmatch(r"checkpoint_(\d+)", name))))
