"""The msgpack file of T5X's own checkpoint layout."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import msgpack
from flax import serialization
from t5x import checkpoint_utils
from t5x._lazy import gfile
from t5x.checkpoint_utils import CheckpointTypes
from t5x.checkpoints_utils import all_steps

FILE_NAME = "checkpoint"
_ORBAX_STATE = "state"
_OLDEST_VERSION = 2


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """The msgpack file of a checkpoint. The leaves of its state are arrays or tensorstore specs as JSON."""

    path: str
    state: Mapping[str, Any]

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CheckpointFile:
        """Reads the file of a checkpoint, given the file or its folder.

        Raises:
            ValueError: it is missing, of another format, or too old.
        """
        file = _file_in(os.fspath(path))
        kind = checkpoint_utils.detect_checkpoint_type(file, expected=CheckpointTypes.T5X)
        if kind is CheckpointTypes.T5X_TF:
            raise ValueError(f"{file} is of a TensorFlow checkpoint; restore it with restore_from_tf_checkpoint")
        with gfile.GFile(file, "rb") as stream:
            content = stream.read()
        try:
            tree = serialization.msgpack_restore(content)
        except (msgpack.UnpackException, ValueError) as error:
            raise ValueError(
                f"{file} is damaged: it cannot be read as msgpack ({error or type(error).__name__})"
            ) from error
        if kind is CheckpointTypes.ORBAX:
            return cls(file, tree)
        version = tree.get("version", 0)
        if version < _OLDEST_VERSION:
            raise ValueError(f"{file} is of version {version}; T5X reads version {_OLDEST_VERSION} and later")
        return cls(file, tree["optimizer"])


def _file_in(path: str) -> str:
    if not gfile.isdir(path):
        file = path
    elif gfile.isdir(os.path.join(path, _ORBAX_STATE)):
        file = os.path.join(path, _ORBAX_STATE, FILE_NAME)
    else:
        file = os.path.join(path, FILE_NAME)
    if not gfile.exists(file) or gfile.isdir(file):
        raise ValueError(f"{file} is not the file of a T5X checkpoint: {what_is_there(path)}")
    return file


def what_is_there(folder: str) -> str:
    if not gfile.exists(folder):
        steps = all_steps(os.path.dirname(folder.rstrip("/")))
        return f"{folder} does not exist" + (f" (checkpoints beside it: {list(steps)})" if steps else "")
    if gfile.exists(os.path.join(folder, _ORBAX_STATE, "_METADATA")):
        return (
            f"{folder} is a checkpoint in orbax layout, which OrbaxCheckpointManagerInterface restores; "
            f"t5x-harness convert {folder} --to transformers --output FOLDER makes a model of transformers of it"
        )
    return f"{folder} holds {sorted(gfile.listdir(folder))[:10] or 'nothing'}"
