"""The open connections: which of them are idle, and which are closed because of that."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
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


class Connections(set[Waiting]):
    """The open connections of a server.

    Idle connections stay open: clients use them again after pauses, and closing one at that moment costs an upload.
    Only when descriptors run out is the connection closed that has been idle longest.

    Args:
      most: how many connections there may be before an idle one is closed for a new one.
    """

    def __init__(self, most: int = 1 << 30, head_seconds: float = _HEAD_SECONDS) -> None:
        super().__init__()
        self._most = most
        self._head_seconds = head_seconds

    def make_room(self, *, full: bool = False) -> bool:
        """Closes the connection that has been idle longest, if there are too many; returns whether there is room now.

        With ``full`` there are too many, whatever their number.
        """
        if not full and len(self) < self._most:
            return True
        longest = min(self, key=lambda it: it.waits_since, default=None)
        if longest is None or longest.waits_since == BUSY:
            return False
        self.discard(longest)
        longest.give_up()
        return True

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Closes connections with heads that do not end, for the duration of the block."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(self._head_seconds / _CHECKS)
                late = time.monotonic() - self._head_seconds
                for connection in [each for each in self if each.head_since < late]:
                    connection.give_up()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
