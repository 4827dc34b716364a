"""The open connections: which of them are idle, and which are closed because of that."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

BUSY = float("inf")

_HEAD_SECONDS = 60.0
_CHECKS = 4  # in that time


class Waiting(Protocol):
    """A connection that requests arrive on.

    Attributes:
      waits_since: when it became idle, by ``time.monotonic``; :data:`BUSY` while a request is answered.
      head_since: when the first bytes of an incomplete head arrived; otherwise :data:`BUSY`.
    """

    waits_since: float
    head_since: float

    def give_up(self) -> None:
        """Closes it because it is idle, or because a head does not end."""

    def shut_down(self) -> None:
        """Closes it as soon as it is idle."""


class Connections:
    """All connections of a server.

    Idle connections stay open: clients use them again after pauses, and closing one at that moment costs an upload.
    Only when descriptors run out is the connection closed that has been idle longest.

    Args:
      most: how many connections there may be before an idle one is closed for a new one.
    """

    def __init__(self, most: int = 1 << 30, head_seconds: float = _HEAD_SECONDS) -> None:
        self._open: set[Waiting] = set()
        self._most = most
        self._head_seconds = head_seconds

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._open))

    def add(self, connection: Waiting) -> None:
        """Adds a connection, whose attributes are read from now on."""
        self._open.add(connection)

    def discard(self, connection: Waiting) -> None:
        """Removes a connection. May be called again."""
        self._open.discard(connection)

    def make_room(self, *, full: bool = False) -> bool:
        """Closes the connection that has been idle longest, if there are too many.

        Args:
          full: whether there are too many, whatever their number.

        Returns:
          Whether there is room now.
        """
        if not full and len(self._open) < self._most:
            return True
        longest = min(self._open, key=lambda it: it.waits_since, default=None)
        if longest is None or longest.waits_since == BUSY:
            return False
        self._open.discard(longest)
        longest.give_up()
        return True

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Closes connections with heads that do not end, for the duration of the block."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._head_seconds / _CHECKS)
            late = time.monotonic() - self._head_seconds
            for connection in self:
                if connection.head_since < late:
                    connection.give_up()
