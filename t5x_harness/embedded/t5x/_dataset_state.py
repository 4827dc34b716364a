"""The position of the input pipeline, saved with a checkpoint so that a run resumes with the next example."""

from __future__ import annotations

import os
from typing import Any

from t5x import partitioning
from t5x._lazy import clu_data, tf
from t5x.checkpoints_utils import _TRAIN_DS_PREFIX


def iterator_file_name(layout: partitioning.DataLayout) -> str:
    return f"{_TRAIN_DS_PREFIX}-{layout.shard_id:03}-of-{layout.num_shards:03}"


def check_iterator(iterator: Any) -> None:
    """Raises a ValueError for a clu iterator that was made without its checkpoint: its position cannot be saved."""
    if isinstance(iterator, clu_data.dataset_iterator.TfDatasetIterator) and not iterator._checkpoint:
        raise ValueError("The dataset iterator was made with checkpoint=False, so its place cannot be kept")


def save_iterator(iterator: Any, path: str | os.PathLike[str]) -> None:
    """Writes the position of a ``tf.data`` or clu iterator into files whose names begin with ``path``."""
    try:
        if isinstance(iterator, tf.data.Iterator):
            tf.train.Checkpoint(ds=iterator).write(os.fspath(path))
        else:
            iterator.save(os.fspath(path))
    except tf.errors.FailedPreconditionError as error:
        error.add_note(
            f"The input pipeline cannot be kept in {path}: it holds state. Cache the stateful part offline, or turn "
            "off saving of the dataset (SaveCheckpointConfig.save_dataset = False)"
        )
        raise


def load_iterator(iterator: Any, path: str | os.PathLike[str]) -> None:
    """Moves an iterator over the same pipeline to the saved position.

    Raises:
        ValueError: the checkpoint has no position of an input pipeline.
    """
    if not tf.io.gfile.exists(f"{os.fspath(path)}.index") and not tf.io.gfile.exists(path):
        raise ValueError(
            f"The checkpoint has no state of the input pipeline: {path} is missing. It was saved without "
            "SaveCheckpointConfig.save_dataset, or by another number of hosts"
        )
    if isinstance(iterator, tf.data.Iterator):
        tf.train.Checkpoint(ds=iterator).read(os.fspath(path)).assert_consumed()
    else:
        iterator.load(os.fspath(path))
