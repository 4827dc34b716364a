"""What is to be cached, what was, and why it was not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


class CacheError(Exception):
    """A task cannot be cached, or its cache does not hold what the task gives without it."""


@dataclasses.dataclass(frozen=True)
class CacheRequest:
    """What is to be cached; the names are those of ``seqio_cache_tasks``.

    Attributes:
      folder: where each task gets a folder of its name; local or ``gs://``.
      tasks: regular expressions of whole names; none means every registered task.
      excluded: the same of those to leave out.
      other_folders: caches that are looked into first.
      min_shards: least number of files of a split.
      max_shards: largest number of files of a split; 0 for as many as its source has.
      base_seed: of random preprocessors; None for SeqIO's own.
      overwrite: write anew what is cached in ``folder``.
      ignore_other_caches: write what is cached in other folders, too.
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
    """A split in its files.

    Attributes:
      name: of the split.
      shards: files.
      stats: as SeqIO's ``stats.<split>.json`` has them: ``examples``, ``inputs_tokens``, ``inputs_max_tokens`` …
      resumed: parts that an interrupted run had written.
    """

    name: str
    shards: int
    stats: Mapping[str, int]
    resumed: int = 0


@dataclasses.dataclass(frozen=True)
class CachedTask:
    """What became of a task.

    Attributes:
      name: of the task.
      folder: with its cache; None where it has none.
      splits: those that were written now.
      left_out: why nothing was written; None where something was.
    """

    name: str
    folder: str | None
    splits: tuple[CachedSplit, ...] = ()
    left_out: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return dataclasses.asdict(self)
