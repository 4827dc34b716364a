"""Single checkpoints: pinning, removing, and telling their formats apart."""

from __future__ import annotations

import enum
import os
from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from t5x._lazy import gfile

PyTree = Any
_PINNED_FILE = "PINNED"
_ORBAX_METADATA_FILE = "_METADATA"
_TF_STATE_FILE_START = b"model_checkpoint_path"


def pinned_checkpoint_filepath(ckpt_dir: str) -> str:
    """Returns the path of the file that marks a checkpoint as one to keep."""
    return os.path.join(ckpt_dir, _PINNED_FILE)


def is_pinned_checkpoint(ckpt_dir: str) -> bool:
    """Returns whether a checkpoint is marked to be kept."""
    return gfile.exists(pinned_checkpoint_filepath(ckpt_dir))


def pin_checkpoint(ckpt_dir: str, txt: str = "1") -> None:
    """Marks a checkpoint as one to keep when old ones are removed; the mark holds a text for readers."""
    with gfile.GFile(pinned_checkpoint_filepath(ckpt_dir), "w") as mark:
        mark.write(txt)


def unpin_checkpoint(ckpt_dir: str) -> None:
    """Removes the mark of ``pin_checkpoint``, if there is one."""
    if is_pinned_checkpoint(ckpt_dir):
        gfile.remove(pinned_checkpoint_filepath(ckpt_dir))


def remove_checkpoint_dir(ckpt_dir: str) -> None:
    """Removes a checkpoint, unless it is pinned."""
    if is_pinned_checkpoint(ckpt_dir):
        logging.info("%s is pinned and stays", ckpt_dir)
        return
    logging.info("Removing %s", ckpt_dir)
    gfile.rmtree(ckpt_dir)


def remove_dataset_checkpoint(ckpt_dir: str, train_ds_prefix: str) -> None:
    """Removes the input pipeline's state, files with a given prefix, from a checkpoint that is not pinned."""
    if is_pinned_checkpoint(ckpt_dir):
        logging.info("%s is pinned and keeps its dataset state", ckpt_dir)
        return
    for file in gfile.glob(os.path.join(ckpt_dir, train_ds_prefix + "*")):
        logging.info("Removing %s", file)
        gfile.remove(file)


class CheckpointTypes(enum.Enum):
    """The formats that T5X reads."""

    ORBAX = "ORBAX"
    T5X = "T5X"
    T5X_TF = "T5X_TF"


def detect_checkpoint_type(checkpoint_path: str, expected: CheckpointTypes | None = None) -> CheckpointTypes:
    """Recognizes the format of a checkpoint by its file ``checkpoint``; logs it if it is not ``expected``.

    Raises:
        ValueError: the file has none of the formats.
    """
    found = _detect(os.fspath(checkpoint_path))
    if expected not in (None, found):
        logging.warning("%s: expected the format %s, found %s", checkpoint_path, expected, found)
    return found


def _detect(path: str) -> CheckpointTypes:
    if gfile.exists(os.path.join(os.path.dirname(path), _ORBAX_METADATA_FILE)):
        return CheckpointTypes.ORBAX
    with gfile.GFile(path, "rb") as file:
        start = file.read(len(_TF_STATE_FILE_START))
    if start == _TF_STATE_FILE_START:
        return CheckpointTypes.T5X_TF
    if not _is_msgpack_map(start):
        raise ValueError(
            f"{path} is not a checkpoint: it has neither T5X's msgpack nor TensorFlow's text, and begins with {start!r}"
        )
    return CheckpointTypes.T5X


def _is_msgpack_map(start: bytes) -> bool:
    return bool(start) and (0x80 <= start[0] <= 0x8F or start[0] in (0xDE, 0xDF))


def get_restore_parameters(directory: epath.Path, structure: Any) -> Any:
    """Returns what orbax needs to read each leaf: a tree of ``orbax.checkpoint.type_handlers.ParamInfo``.

    ``structure`` is a tree of leaf metadata, as in the checkpoint; empty nodes in it stay, and plain values are marked
    as not to be read.
    """
    is_ocdbt = ocp.type_handlers.is_ocdbt_checkpoint(directory)
    context = ocp.type_handlers.get_ts_context()
    is_empty = ocp.type_handlers.is_supported_empty_value

    def info_of(leaf: Any, name: str) -> Any:
        if is_empty(leaf):
            return leaf
        stored = isinstance(leaf, ocp.metadata.tree.ValueMetadataEntry)
        return ocp.type_handlers.ParamInfo(
            name=name,
            parent_dir=directory,
            skip_deserialize=leaf.skip_deserialize if stored else True,
            is_ocdbt_checkpoint=is_ocdbt,
            ts_context=context,
        )

    return jax.tree.map(info_of, structure, ocp.tree.get_param_names(structure), is_leaf=is_empty)
