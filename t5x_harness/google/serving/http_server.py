"""HTTP connections: what listens, what is open, and how it all ends."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.lifespan.on import LifespanOn
from uvicorn.server import ServerState

from t5x_harness.google.serving.asgi import App
from t5x_harness.google.serving.heads import LONGEST_HEAD
from t5x_harness.google.serving.http_protocol import HttpProtocol

__all__ = ["HttpServer"]

# Pooled connections are used again after pauses; one that the server closes at that moment costs an upload.
_KEEP_ALIVE_SECONDS = 3600
_GRACE_SECONDS = 1.0


class HttpServer:
    """Gives every connection to one ASGI application, whoever accepted it.

    uvicorn's own server listens on one socket and takes the process's signals. This process has several ports, and
    connections that begin as something else, so only uvicorn's protocol is used.

    Args:
      app: the application. Its lifespan is followed if it has one.
    """

    def __init__(self, app: App) -> None:
        self._config = Config(
            cast(Any, app),
            http=HttpProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=LONGEST_HEAD,
        )
        self._config.load()
        self._state = ServerState()
        self._lifespan = LifespanOn(self._config)
        self._clock: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Lets the application start.

        Raises:
          RuntimeError: it failed to.
        """
        await self._lifespan.startup()
        if self._lifespan.should_exit:
            raise RuntimeError("the application could not start")
        self._tick()

    def protocol(self) -> HttpProtocol:
        """A protocol for one more connection, plain or of TLS."""
        return HttpProtocol(self._config, self._state, {})

    async def stop(self) -> None:
        """Closes idle connections, gives answers under way a moment, cancels the rest, and lets the application end."""
        if self._clock:
            self._clock.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._lifespan.shutdown()

    def _tick(self) -> None:
        """Keeps the header Date right to the second without formatting it for every answer."""
        now = time.time()
        self._state.default_headers = [(b"date", formatdate(now, usegmt=True).encode())]
        self._clock = asyncio.get_running_loop().call_later(1.0 - now % 1.0, self._tick)
