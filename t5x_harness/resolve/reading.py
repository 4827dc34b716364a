"""Reading that comes to an end: bounded in items and in time.

A user's source may be infinite, may wait for a server, or may compute for minutes before its first example.  So it runs
in a thread of its own; when time is up, the items that came so far count, and the thread is left behind.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Reading(Generic[_Item]):
    """The outcome of reading.

    Attributes:
      kept: the first items.
      count: how many items came, including those that were not kept.
      ended: whether there were no more.
      late: whether time ran out before enough had come.
    """

    kept: tuple[_Item, ...]
    count: int
    ended: bool
    late: bool


def read_within(
    items: Callable[[], Iterable[_Item]], *, keep: int, count: int, seconds: float, further: int = 0, spare: float = 0.0
) -> Reading[_Item]:
    """Reads until enough items came, there are no more, or time is up.

    Args:
      items: called in the thread that reads, as making the iterable may also take long.
      keep: how many of the first items to keep.
      count: how many items to count; the items to keep are read in any case.
      seconds: how long to wait for them.
      further: how many items to count if they come soon; none by default.
      spare: how long that may take, from the beginning.

    Raises:
      Exception: whatever ``items`` and the iteration raise in time.
    """
    enough = max(keep, count)
    reader = _ReaderThread(items, keep, enough, max(enough, further))
    until = time.monotonic() + spare
    reader.start()
    reader.has_enough.wait(seconds)
    reader.join(max(0.0, until - time.monotonic()))
    return reader.result()


class _ReaderThread(threading.Thread, Generic[_Item]):
    """Reads in the background, as a daemon: a source that never ends must not keep the process alive."""

    def __init__(self, items: Callable[[], Iterable[_Item]], keep: int, enough: int, most: int) -> None:
        super().__init__(name="t5x-harness-reader", daemon=True)
        self._items = items
        self._keep = keep
        self._enough = enough
        self._most = most
        self.has_enough = threading.Event()
        self._kept: list[_Item] = []
        self._count = 0
        self._ended = False
        self._error: BaseException | None = None
        self._left = threading.Event()

    def run(self) -> None:
        try:
            for item in self._items():
                if len(self._kept) < self._keep:
                    self._kept.append(item)
                self._count += 1
                if self._count >= self._most or self._left.is_set():
                    return
                if self._count >= self._enough:
                    self.has_enough.set()
            self._ended = True
        except BaseException as error:  # it is raised again in the thread that asked for the items
            self._error = error
        finally:
            self.has_enough.set()

    def result(self) -> Reading[_Item]:
        """Returns what came so far; nothing that comes later changes it."""
        late = not self.has_enough.is_set()
        self._left.set()
        if self._error is not None:
            raise self._error
        kept = tuple(self._kept)
        return Reading(kept, max(self._count, len(kept)), self._ended, late)
