"""Whether a source comes to an end: what is evaluated or predicted is read to the last example, and kept in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.resolve.reading import read_within

LOOKED_AT = 10_000
"""Examples of a source that are read to find its end."""


@dataclasses.dataclass(frozen=True)
class SourceEnd:
    """How far a source was read to find its end, and what was seen.

    Attributes:
      read: examples that were read.
      ended: whether there were no more.
      period: after how many examples they come again, if the same ones went round and round.
    """

    read: int
    ended: bool
    period: int | None = None

    @property
    def rounds(self) -> int:
        """How often all examples were seen."""
        return self.read // self.period if self.period else 1


def find_end(task: seqio.Task, split: str, seed: int | None, seconds: float) -> SourceEnd:
    """Reads a task's source until it ends, within bounds.

    Args:
      task: its own source is read, without preprocessing.
      split: the split.
      seed: as the run gives it to the source.
      seconds: how long it may take.

    Raises:
      Exception: whatever the source raises.
    """

    def marks() -> Iterable[Hashable]:
        dataset = task.source.get_dataset(split=split, shuffle=False, seed=seed)
        return map(_mark, dataset.as_numpy_iterator())

    reading = read_within(marks, keep=LOOKED_AT, count=LOOKED_AT, seconds=seconds)
    return SourceEnd(reading.count, reading.ended, None if reading.ended else period_of(reading.kept))


def _mark(example: object) -> int:
    """Returns a number by which to know an example again."""
    leaves = (np.asarray(leaf) for leaf in tf.nest.flatten(example, expand_composites=True))
    return hash(tuple((leaf.shape, leaf.tobytes() if leaf.dtype != object else tuple(leaf.flat)) for leaf in leaves))


def period_of(items: Sequence[Hashable]) -> int | None:
    """Returns the number of items after which a sequence starts again, and does nothing else; None if it does not."""
    # The longest beginning of the sequence that is also its end, for each of its beginnings (Knuth, Morris, Pratt).
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
