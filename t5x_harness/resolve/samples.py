"""A bounded sample of one task and split: a few examples as the run would read them, and what they cost to get."""

from __future__ import annotations

import copy
import dataclasses
import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.reading import Reading, read_within
from t5x_harness.upstream.seqio import replace_source

EXAMPLES = 64
"""Examples of each task and split that are kept, and judged."""

SOURCE_EXAMPLES = 10_000
"""Examples that are taken from a source at most, however many of them the preprocessors drop."""

SECONDS = 20.0
"""How long one split may take; what was read by then counts."""

_THREADS = 4


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a few examples of one task and split look like.

    Attributes:
      task: the task.
      split: the split.
      examples: what was kept, at most :data:`EXAMPLES`; features as arrays, texts as bytes.
      whole: whether features have their full lengths; otherwise the task cuts them itself.
      count: how many examples came, with those that were not kept.
      ended: whether the split has no more than that.
      late: whether time ran out before enough had come.
      endless: True where TensorFlow knows that the split has no end, False where it knows the end or it was seen; None
        if neither.
      source_size: examples of the source, before preprocessing, where all of them were read.
    """

    task: seqio.Task
    split: str
    examples: tuple[Mapping[str, Any], ...]
    whole: bool
    count: int = 0
    ended: bool = False
    late: bool = False
    endless: bool | None = None
    source_size: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether the split has no other examples than those that were kept."""
        return self.ended and self.count == len(self.examples)

    def values(self, feature: str) -> list[Any]:
        """Returns the values of a feature, of the examples that have it: arrays, or bytes for a text."""
        return [e[feature] for e in self.examples if feature in e]

    def lengths(self, feature: str) -> list[int]:
        """Tokens of each value of a feature; empty where it is not a sequence."""
        return [len(value) for value in self.values(feature) if np.ndim(value)]

    def longest(self, feature: str) -> int:
        """Tokens of the longest value of a feature; 0 without examples."""
        return max(self.lengths(feature), default=0)

    def median(self, feature: str) -> float:
        """Tokens of the middle value of a feature; 0 without examples."""
        return statistics.median(self.lengths(feature) or [0])

    def truncated(self, feature: str, length: int) -> float:
        """Returns the share of examples whose feature is longer than a length."""
        lengths = self.lengths(feature)
        return sum(n > length for n in lengths) / len(lengths) if lengths else 0.0

    def padding(self, feature: str, length: int) -> float:
        """Returns the share of padding where each example has a row of its own, of this length."""
        lengths = self.lengths(feature)
        return 1 - sum(min(n, length) for n in lengths) / (length * len(lengths)) if lengths and length else 0.0


@dataclasses.dataclass
class _Size:
    """What TensorFlow knows of the source's size and of the split's; filled in where they are made."""

    source: int = tf.data.UNKNOWN_CARDINALITY
    split: int = tf.data.UNKNOWN_CARDINALITY

    @property
    def endless(self) -> bool | None:
        if tf.data.INFINITE_CARDINALITY in (self.source, self.split):
            return True
        return None if self.split == tf.data.UNKNOWN_CARDINALITY else False


def sample_of(
    role: DataRole,
    task: seqio.Task,
    *,
    use_cached: bool,
    count: int = 0,
    seconds: float = SECONDS,
    further: int = 0,
    spare: float = 0.0,
) -> Sample:
    """Reads examples of a task as the run would, but uncut where the task allows it, and keeps the first.

    Args:
      role: the dataset that the task is part of.
      task: the task.
      use_cached: whether to read the task's cache instead of its source.
      count: how many examples to count at least, if there are so many; :data:`EXAMPLES` of them are kept.
      seconds: how long that may take.
      further: how many examples to read where there is time, as any of them may make a preprocessor raise.
      spare: how long reading may take for that, from its beginning.

    Raises:
      Exception: whatever the task's source and preprocessors raise.
    """
    dataset = role.dataset
    size = _Size()
    most = max(SOURCE_EXAMPLES, further)
    read = functools.partial(_examples, task, role, use_cached, size, most)

    def within(lengths: Mapping[str, Any] | None) -> Reading[Mapping[str, Any]]:
        examples = functools.partial(read, lengths)
        return read_within(examples, keep=EXAMPLES, count=count, seconds=seconds, further=further, spare=spare)

    reading: Reading[Mapping[str, Any]] | None = None
    try:
        reading = within(None)
    except Exception:  # any preprocessor may need the lengths, and says so in its own way
        if dataset.task_feature_lengths is None:
            raise
    whole = reading is not None
    if reading is None:  # not while that exception is handled: it would be the context of what is raised now
        reading = within(dict(dataset.task_feature_lengths))
    ended, source_size = reading.ended, None
    if ended and not use_cached:
        source_size = size.source if size.source >= 0 else _count(task, role, seconds, most)
        ended = source_size <= most
    return Sample(
        task,
        dataset.split,
        reading.kept,
        whole,
        count=reading.count,
        ended=ended,
        late=reading.late,
        endless=False if ended else size.endless,
        source_size=source_size if ended else None,
    )


def _examples(
    task: seqio.Task, role: DataRole, use_cached: bool, size: _Size, most: int, lengths: Mapping[str, Any] | None
) -> Iterable[Mapping[str, Any]]:
    """Returns the examples of a split, made of a bounded part of its source."""
    dataset = (task if use_cached else _bounded(task, size, most)).get_dataset(
        lengths,
        split=role.dataset.split,
        use_cached=use_cached,
        shuffle=False,
        seed=role.dataset.seed,
        num_epochs=1,
    )
    size.split = int(dataset.cardinality())
    return _iterate(dataset)


def _iterate(dataset: tf.data.Dataset) -> Iterable[Any]:
    options = tf.data.Options()
    # Enough for a source that waits in one thread while what it gave before goes through the preprocessors.
    options.threading.private_threadpool_size = _THREADS
    iterator: Iterable[Any] = dataset.with_options(options).as_numpy_iterator()
    return iterator


def _bounded(task: seqio.Task, size: _Size, most: int) -> seqio.Task:
    """Returns a copy of a task whose source gives its first examples only: preprocessors may drop whatever they get.

    A copy, as the reading may be left behind, and the run needs the task as it is.
    """
    source, bounded = copy.copy(task.source), copy.copy(task)

    def get_dataset(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        dataset = task.source.get_dataset(*args, **kwargs)
        size.source = int(dataset.cardinality())
        return dataset.take(most)

    source.get_dataset = get_dataset
    replace_source(bounded, source)
    return bounded


def _count(task: seqio.Task, role: DataRole, seconds: float, most: int) -> int:
    """Returns how many examples a source has; one more than are taken of it stands for all larger numbers."""

    def whole() -> Iterable[Any]:
        return _iterate(task.source.get_dataset(split=role.dataset.split, shuffle=False, seed=role.dataset.seed))

    reading = read_within(whole, keep=0, count=most + 1, seconds=seconds)
    return reading.count if reading.ended else most + 1


def packed_rows(examples: Sequence[Mapping[str, Any]], lengths: Mapping[str, int]) -> int:
    """Rows that examples take when they are packed as SeqIO does: in order, until one of the features is full.

    Args:
      examples: their features as arrays.
      lengths: the length of a row by feature, in tokens.
    """
    rows = 0
    room = dict.fromkeys(lengths, 0)
    for example in examples:
        needed = {name: min(len(example[name]), length) for name, length in lengths.items()}
        if not rows or any(needed[name] > room[name] for name in lengths):
            rows, room = rows + 1, dict(lengths)
        room = {name: room[name] - needed[name] for name in lengths}
    return rows
