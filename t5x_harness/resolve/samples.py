"""Takes a bounded sample of a task and split: a few examples as the run would read them, and whether the source ends.

A user's source may be infinite, may wait for a server, or may compute for minutes before its first example. So it is
read in its own thread; when time is up, the items that came so far count, and the thread is left behind.
"""

import copy
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole, source_dataset
from t5x_harness.upstream.seqio import replace_source

EXAMPLES = 64
"""The number of examples of each task and split that are kept and judged."""

SOURCE_EXAMPLES = 10_000
"""The largest number of examples to take from a source, no matter how many of them the preprocessors drop."""

EXAMPLES_TO_THE_END = 10_000
"""The largest number of examples of a source to read in search of its end."""

SECONDS = 20.0
"""Seconds that one split may take; the examples that were read by then count."""

_THREADS = 4

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Reading(Generic[_Item]):
    """The outcome of reading items within limits.

    Attributes:
      kept: the first items.
      count: the number of items that came, including those that were not kept.
      ended: whether there were no more items.
      late: whether time ran out before enough had come.
    """

    kept: tuple[_Item, ...]
    count: int
    ended: bool
    late: bool


def read_within(
    items: Callable[[], Iterable[_Item]], *, keep: int, count: int, seconds: float, further: int = 0, spare: float = 0.0
) -> Reading[_Item]:
    """Reads until enough items have come, none are left, or time is up.

    Args:
      items: makes the iterable; called in the reading thread, because this may also take long.
      keep: the number of items to keep, the first ones.
      count: the number of items to count; the items to keep are read in any case.
      seconds: the time to wait for them.
      further: the number of items to count if they come soon; none by default.
      spare: the time for that, from the beginning.

    Raises:
      Exception: ``items`` or the iteration raises it in time.
    """
    enough = max(keep, count)
    most = max(enough, further)
    kept: list[_Item] = []
    raised: list[BaseException] = []
    came, ended = 0, False
    has_enough, left = threading.Event(), threading.Event()

    def read() -> None:
        nonlocal came, ended
        try:
            for item in items():
                if len(kept) < keep:
                    kept.append(item)
                came += 1
                if came >= most or left.is_set():
                    return
                if came >= enough:
                    has_enough.set()
            ended = True
        except BaseException as error:  # raised again in the thread that asked for the items
            raised.append(error)
        finally:
            has_enough.set()

    # A daemon, because a source that never ends must not keep the process alive.
    reader = threading.Thread(target=read, name="t5x-harness-reader", daemon=True)
    until = time.monotonic() + spare
    reader.start()
    has_enough.wait(seconds)
    reader.join(max(0.0, until - time.monotonic()))
    late = not has_enough.is_set()
    left.set()
    if raised:
        raise raised[0]
    first = tuple(kept)  # items that come later change nothing
    return Reading(first, max(came, len(first)), ended, late)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A few examples of one task and split.

    Attributes:
      task: the task.
      split: the split.
      examples: the kept examples, at most :data:`EXAMPLES`; features as arrays, texts as bytes.
      whole: whether features have their full lengths; otherwise the task cuts them itself.
      count: the number of examples that came, including those that were not kept.
      ended: whether the split has no more examples.
      late: whether time ran out before enough had come.
      endless: True if TensorFlow knows that the split has no end, False if its end is known or was seen, else None.
      source_size: the number of the source's examples before preprocessing, if all of them were read; otherwise None.
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
        """Whether the split has no examples other than those that were kept."""
        return self.ended and self.count == len(self.examples)

    @property
    def features(self) -> frozenset[str]:
        """The features that the examples have; empty without examples."""
        return frozenset(self.examples[0]) if self.examples else frozenset()

    def values(self, feature: str) -> list[Any]:
        """Returns a feature's values in the examples that have it: arrays, or bytes for a text."""
        return [e[feature] for e in self.examples if feature in e]

    def lengths(self, feature: str) -> list[int]:
        """Returns the number of tokens of each value of a feature; empty if it is not a sequence."""
        return [len(value) for value in self.values(feature) if np.ndim(value)]

    def longest(self, feature: str) -> int:
        """Returns the number of tokens of a feature's longest value; 0 without examples."""
        return max(self.lengths(feature), default=0)

    def truncated(self, feature: str, length: int) -> float:
        """Returns the share of examples whose feature is longer than a length."""
        lengths = self.lengths(feature)
        return sum(n > length for n in lengths) / len(lengths) if lengths else 0.0

    def padding(self, feature: str, length: int) -> float:
        """Returns the share of padding if each example has its own row of this length."""
        lengths = self.lengths(feature)
        return 1 - sum(min(n, length) for n in lengths) / (length * len(lengths)) if lengths and length else 0.0


class _SplitReader:
    """Reads a split from a bounded part of its source, and notes what TensorFlow knows about the sizes of both.

    The task itself is not changed: a reading may be left behind while the run continues to use the task.
    """

    def __init__(self, task: seqio.Task, role: DataRole, use_cached: bool, most: int) -> None:
        self._task, self._dataset, self._use_cached, self._most = task, role.dataset, use_cached, most
        self.source_size = self._size = tf.data.UNKNOWN_CARDINALITY

    @property
    def endless(self) -> bool | None:
        """Whether the split has no end; None if unknown."""
        if tf.data.INFINITE_CARDINALITY in (self.source_size, self._size):
            return True
        return None if self._size == tf.data.UNKNOWN_CARDINALITY else False

    def examples(self, lengths: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        """Returns the examples, with the features cut to these lengths."""
        task = self._task if self._use_cached else copy.copy(self._task)
        if not self._use_cached:
            source = copy.copy(task.source)
            source.get_dataset = self._first_of_source
            replace_source(task, source)
        options = {"use_cached": self._use_cached, "shuffle": False, "seed": self._dataset.seed, "num_epochs": 1}
        dataset = task.get_dataset(lengths, split=self._dataset.split, **options)
        self._size = int(dataset.cardinality())
        return _iterate(dataset)

    def _first_of_source(self, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """Returns only the first examples of the source, because preprocessors may drop everything that they get."""
        dataset = self._task.source.get_dataset(*args, **kwargs)
        if not isinstance(dataset, tf.data.Dataset):
            return dataset  # for SeqIO to refuse
        self.source_size = int(dataset.cardinality())
        return dataset.take(self._most)


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
    """Reads examples of a task as the run would, but untruncated if the task allows it, and keeps the first ones.

    Args:
      role: the dataset that the task is part of.
      task: the task.
      use_cached: whether to read the task's cache instead of its source.
      count: the least number of examples to count, if the split has so many; :data:`EXAMPLES` of them are kept.
      seconds: the time for that.
      further: the number of examples to read if there is time, because any of them may make a preprocessor raise.
      spare: the time for that, from the beginning.

    Raises:
      Exception: the task's source or a preprocessor raises it.
    """
    dataset = role.dataset
    most = max(SOURCE_EXAMPLES, further)
    reader = _SplitReader(task, role, use_cached, most)

    def within(lengths: Mapping[str, Any] | None) -> Reading[Mapping[str, Any]]:
        examples = functools.partial(reader.examples, lengths)
        return read_within(examples, keep=EXAMPLES, count=count, seconds=seconds, further=further, spare=spare)

    reading: Reading[Mapping[str, Any]] | None = None
    try:
        reading = within(None)
    except Exception:  # any preprocessor may need the lengths, and each fails in its own way without them
        if dataset.task_feature_lengths is None:
            raise
    whole = reading is not None
    if reading is None:  # not inside the except clause, whose exception would become the context of the next one
        reading = within(dict(dataset.task_feature_lengths))
    ended, source_size = reading.ended, None
    if ended and not use_cached:
        source_size = reader.source_size if reader.source_size >= 0 else _count(task, role, seconds, most)
        ended = source_size <= most
    endless, source_size = (False, source_size) if ended else (reader.endless, None)
    return Sample(
        task, dataset.split, reading.kept, whole, reading.count, ended, reading.late, endless, source_size=source_size
    )


def _iterate(dataset: tf.data.Dataset) -> Iterable[Any]:
    options = tf.data.Options()
    # Enough for a source that waits in one thread while its earlier examples go through the preprocessors.
    options.threading.private_threadpool_size = _THREADS
    iterator: Iterable[Any] = dataset.with_options(options).as_numpy_iterator()
    return iterator


def _count(task: seqio.Task, role: DataRole, seconds: float, most: int) -> int:
    """Counts the examples of a source; ``most + 1`` stands for all larger numbers."""
    reading = read_within(lambda: _iterate(source_dataset(task, role.dataset)), keep=0, count=most + 1, seconds=seconds)
    return reading.count if reading.ended else most + 1


@dataclasses.dataclass(frozen=True)
class SourceEnd:
    """The result of reading a source to find its end.

    Attributes:
      read: the number of examples that were read.
      ended: whether there were no more examples.
      period: the number of examples after which the same ones repeat; None if they do not repeat.
    """

    read: int
    ended: bool
    period: int | None = None

    @property
    def rounds(self) -> int:
        """The number of times that all examples were seen."""
        return self.read // self.period if self.period else 1


def find_end(task: seqio.Task, role: DataRole, seconds: float) -> SourceEnd:
    """Reads a task's source until it ends, within bounds.

    Evaluation and inference read a source to its last example and keep it in memory, so it has to end.

    Args:
      task: the task, whose source is read without preprocessing.
      role: the dataset that the task is part of.
      seconds: the time limit.

    Raises:
      Exception: the source raises it.
    """

    def marks() -> Iterable[Hashable]:
        return map(_mark, source_dataset(task, role.dataset).as_numpy_iterator())

    reading = read_within(marks, keep=EXAMPLES_TO_THE_END, count=EXAMPLES_TO_THE_END, seconds=seconds)
    return SourceEnd(reading.count, reading.ended, None if reading.ended else period_of(reading.kept))


def _mark(example: object) -> int:
    """Returns a number that is the same for equal examples."""
    leaves = (np.asarray(leaf) for leaf in tf.nest.flatten(example, expand_composites=True))
    return hash(tuple((leaf.shape, leaf.tobytes() if leaf.dtype != object else tuple(leaf.flat)) for leaf in leaves))


def period_of(items: Sequence[Hashable]) -> int | None:
    """Returns the number of items after which a sequence repeats itself to its end, or None if it does not."""
    # For each prefix, the length of its longest proper prefix that is also its suffix (Knuth, Morris, Pratt).
    borders = [0] * len(items)
    for i in range(1, len(items)):
        length = borders[i - 1]
        while length and items[i] != items[length]:
            length = borders[length - 1]
        borders[i] = length + (items[i] == items[length])
    if not items:
        return None
    period = len(items) - borders[-1]
    return period if 2 * period <= len(items) else None


def packed_rows(examples: Sequence[Mapping[str, Any]], lengths: Mapping[str, int]) -> int:
    """Counts the rows that examples take if they are packed as SeqIO packs them: in order, until one feature is full.

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
