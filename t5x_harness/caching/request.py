"""The request to cache tasks, and its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from t5x_harness.system.decode import JsonValue


class CacheError(Exception):
    """A task cannot be cached, or its cache does not hold the task's own examples."""


@dataclasses.dataclass(frozen=True)
class CacheRequest:
    """What to cache; the attributes have the names of ``seqio_cache_tasks``.

    Attributes:
      folder: the folder in which each task gets a folder of its name; local or ``gs://``.
      tasks: regular expressions for whole names; none stands for every registered task.
      excluded: regular expressions for tasks to leave out.
      other_folders: caches that are searched first.
      min_shards: the fewest files of a split.
      max_shards: the most files of a split; 0 for as many as its source has.
      base_seed: the seed of random preprocessors; None for SeqIO's own.
      overwrite: overwrite caches in ``folder``.
      ignore_other_caches: write caches that exist in other folders, too.
      check: read everything again and compare.
    """

    folder: str
    tasks: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    other_folders: tuple[str, ...] = ()
    min_shards: int = 64
    max_shards: int = 0
    base_seed: int | None = None
    overwrite: bool = False
    ignore_other_caches: bool = False
    check: bool = True


@dataclasses.dataclass(frozen=True)
class CachedSplit:
    """A split that was cached.

    Attributes:
      name: the name of the split.
      shards: the number of files.
      stats: the numbers in SeqIO's ``stats.<split>.json``: ``examples``, ``inputs_tokens``, ``inputs_max_tokens`` …
      resumed: the number of parts that an interrupted run had written.
    """

    name: str
    shards: int
    stats: Mapping[str, int]
    resumed: int = 0


@dataclasses.dataclass(frozen=True)
class CachedTask(JsonValue):
    """The result for a task.

    Attributes:
      name: the name of the task.
      folder: the folder of its cache; None if it has none.
      splits: the splits that were written now.
      left_out: why nothing was written; None if something was.
    """

    name: str
    folder: str | None
    splits: tuple[CachedSplit, ...] = ()
    left_out: str | None = None
