"""The connections that are open: which of them wait for a request, and which are closed for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

BUSY = float("inf")

_HEAD_SECONDS = 60.0
_LOOKS = 4  # in that time


class Waiting(Protocol):
    """A connection that requests come on.

    Attributes:
      waits_since: when it began to wait for a request, by ``time.monotonic``; :data:`BUSY` while one is answered.
      head_since: when the first bytes of a request's head came, if the rest has not come yet; else :data:`BUSY`.
    """

    waits_since: float
    head_since: float

    def give_up(self) -> None:
        """Closes it because it waits, or because the head does not end."""

    def shut_down(self) -> None:
        """Closes it as soon as it waits."""


class Connections:
    """All connections of a server.

    Those that wait for a request are kept: clients use them again after pauses, and one that is closed at that moment
    costs an upload. Only where descriptors run out is the one closed that has waited longest.

    Args:
      most: how many there may be before one that waits is closed for a new one.
      head_seconds: how long a request's head may take.
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
        """Takes one up; its attributes are read from now on."""
        self._open.add(connection)

    def discard(self, connection: Waiting) -> None:
        """Lets go of one. May be called again."""
        self._open.discard(connection)

    def make_room(self, *, full: bool = False) -> bool:
        """Closes the connection that has waited longest, if there are too many.

        Args:
          full: there are, however many that is.

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
        """Closes connections on which heads do not end, as long as the block lasts."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._head_seconds / _LOOKS)
            late = time.monotonic() - self._head_seconds
            for connection in self:
                if connection.head_since < late:
                    connection.give_up()
