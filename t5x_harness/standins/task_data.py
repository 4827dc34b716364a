"""What a task reads: its files or functions, whether they are within reach, and whether it is cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.buckets.reach import is_unreachable
from t5x_harness.upstream.seqio import function_of, split_patterns


def patterns_of(task: seqio.Task, split: str) -> tuple[str, ...]:
    """Returns the file patterns, the TFDS dataset or the function that a split is read from, as the task names it."""
    source = task.source
    if isinstance(source, seqio.FileDataSource):
        return split_patterns(source, split)
    if isinstance(source, seqio.TfdsDataSource):
        dataset, folder = source.tfds_dataset.get_split_params(split)
        return (f"{dataset or folder}{f' in {folder}' if dataset and folder else ''}",)
    function = function_of(source)
    function = getattr(function, "func", function)  # of a partial
    return (getattr(function, "__name__", type(source).__name__),)


def is_generated(task: seqio.Task) -> bool:
    """Tells whether a task's examples come from code and not from files; only then may they never end."""
    return not isinstance(task.source, (seqio.FileDataSource, seqio.TfdsDataSource))


def files_of(task: seqio.Task, split: str) -> Sequence[str] | None:
    """Returns the files of a split, or None if it is not read from files or they cannot be listed here."""
    if is_generated(task) or split not in splits_of(task):
        return None
    try:
        files: Sequence[str] = task.source.list_shards(split)
    except (tf.errors.OpError, OSError, LookupError):
        return None
    except (ValueError, AssertionError):  # TFDS does not have the dataset or version
        return None
    return files


def out_of_reach(task: seqio.Task, split: str) -> tuple[str, ...]:
    """Returns where a split's data is, if it is in buckets that this machine does not see."""
    if isinstance(task.source, seqio.TfdsDataSource):
        _, folder = task.source.tfds_dataset.get_split_params(split)
        return (str(folder),) if folder and is_unreachable(str(folder)) else ()
    if isinstance(task.source, seqio.FileDataSource):
        return tuple(filter(is_unreachable, patterns_of(task, split)))
    return ()


def splits_of(task: seqio.Task) -> Sequence[str]:
    """Returns the splits of a task; empty if only data that is not here could tell."""
    try:
        return tuple(task.splits)
    except Exception:  # TFDS raises in many ways, and SeqIO a ValueError for a dataset that is not prepared
        return ()


def declared_size(task: seqio.Task, split: str) -> int | None:
    """Returns how many examples a source says a split has, or None if it does not say."""
    try:
        number: Any = task.source.num_input_examples(split)
    except Exception:  # the data is not here, or the split is not counted
        return None
    return int(number) if number and number != float("inf") else None


def cache_of(task: seqio.Task) -> str | None:
    """Returns the folder with a task's cached examples, or None if there is none within reach."""
    folder: str | None = task.cache_dir if task.supports_caching else None
    return folder
