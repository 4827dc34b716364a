"""HTTP connections: what is open, who answers, and how it all ends."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

from t5x_harness.google.serving.asgi import App
from t5x_harness.google.serving.connections import Connections
from t5x_harness.google.serving.eager import begin
from t5x_harness.google.serving.exchange import Exchange
from t5x_harness.google.serving.http_protocol import HttpProtocol
from t5x_harness.google.serving.lifespan import Lifespan

__all__ = ["HttpServer"]

_GRACE_SECONDS = 1.0
_READ_AT_ONCE = 1 << 18  # bytes


class HttpServer:
    """Gives every connection to one ASGI application, whoever accepted it.

    Args:
      app: the application. Its lifespan is followed if it has one.
      connections: where those are kept that are open; none yet by default.

    Attributes:
      connections: as above.
      buffer: for what is read of any of them, of which it is copied at once. Without it, asyncio asks the system for
        256 KB of memory for every read.
    """

    def __init__(self, app: App, connections: Connections | None = None) -> None:
        self.connections = Connections() if connections is None else connections
        self.buffer = memoryview(bytearray(_READ_AT_ONCE))
        self._app = app
        self._lifespan = Lifespan(app)
        self._exchanges: set[asyncio.Task[None]] = set()
        self._date = (0, b"")

    async def start(self) -> None:
        """Lets the application start.

        Raises:
          RuntimeError: it failed to.
        """
        await self._lifespan.start()

    def protocol(self) -> HttpProtocol:
        """A protocol for one more connection, plain or of TLS."""
        return HttpProtocol(self)

    def begin(self, exchange: Exchange) -> None:
        """Lets the application answer a request."""
        task = begin(exchange.run(self._app))
        if task is not None:
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)

    @property
    def date(self) -> bytes:
        """Of now, as HTTP has it, which is made anew once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = now, formatdate(now, usegmt=True).encode()
        return self._date[1]

    async def stop(self) -> None:
        """Closes idle connections, gives answers under way a moment, cancels the rest, and lets the application end."""
        for connection in self.connections:
            connection.shut_down()
        if self._exchanges:
            _, late = await asyncio.wait(self._exchanges, timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._lifespan.end()
