"""The request to cache tasks, and its results."""

import dataclasses
from collections.abc import Mapping

from t5x_harness.system.decode import JsonValue


class CacheError(Exception):
    """A task cannot be cached, or its cache does not contain the task's own examples."""


@dataclasses.dataclass(frozen=True)
class CacheRequest:
    """A request to cache tasks; the attributes have the names that ``seqio_cache_tasks`` uses.

    Attributes:
      folder: the folder, local or ``gs://``, in which each task gets a folder with its name.
      tasks: regular expressions for whole names; empty for every registered task.
      excluded: regular expressions for tasks to leave out.
      other_folders: the folders of caches that are searched first.
      min_shards: the minimum number of files in a split.
      max_shards: the maximum number of files in a split; 0 for as many as its source has.
      base_seed: the seed of random preprocessors; None for SeqIO's own seed.
      overwrite: whether to overwrite caches in ``folder``.
      ignore_other_caches: whether to write caches even if they exist in other folders.
      check: whether to read everything again and compare.
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
      resumed: the number of parts that an interrupted run had already written.
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
      splits: the splits that this run wrote.
      left_out: why nothing was written; None if something was written.
    """

    name: str
    folder: str | None
    splits: tuple[CachedSplit, ...] = ()
    left_out: str | None = None
