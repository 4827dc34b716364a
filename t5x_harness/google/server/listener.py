"""A port of the server: takes the connections of its own user, and says at most once a second what it does not take."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable

from t5x_harness.google.server.connections import Connections
from t5x_harness.google.server.peers import Peers
from t5x_harness.google.server.settings import ServerError
from t5x_harness.google.server.throttled_log import ThrottledLog

_BACKLOG = 1024
_AT_ONCE = 64  # connections before others are served again
_PAUSE_SECONDS = 1.0
_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PortListener:
    """One port on 127.0.0.1.

    asyncio's own server takes everybody's connections, and logs a traceback for each that it has no descriptor for.

    Args:
      port: its number; 0 for any.
      tls: for a port of TLS.
      connections: of the server, of which one may be closed for a new one.
      log: where it says what it does not take.

    Raises:
      ServerError: the port cannot be opened; the message says why.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        port: int,
        tls: ssl.SSLContext | None,
        *,
        peers: Peers,
        connections: Connections,
        log: ThrottledLog,
    ) -> None:
        self._protocol, self._tls = protocol, tls
        self._peers, self._connections, self._log = peers, connections, log
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        try:
            self._socket = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ServerError(f"port {port} is not available: {reason}; name another one, or none for any") from None
        self._socket.setblocking(False)
        self._address = self._socket.getsockname()
        self._loop.add_reader(self._socket, self._accept)

    @property
    def port(self) -> int:
        return int(self._address[1])

    def close(self) -> None:
        """Takes no more connections; those that are there go on."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._beginning:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF:
                    raise
                if not self._connections.make_room(full=True):
                    self._log.write(
                        f"cannot take a connection: {error.strerror}, and none of the {len(self._connections)} that "
                        "are open waits for a request; see ulimit -n"
                    )
                    self._loop.remove_reader(self._socket)
                    self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return  # a connection that was closed gives its descriptor back in the next turn
            refusal = self._peers.refusal(peer, self._address)
            if refusal is not None:
                connection.close()
                if refusal:
                    self._log.write(
                        f"a connection to port {self.port} is refused: {refusal}; only the user who started the "
                        "emulated Google Cloud, and root, may ask it"
                    )
                continue
            self._connections.make_room()
            connection.setblocking(False)
            task = self._loop.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._socket, self._accept)

    async def _begin(self, connection: socket.socket) -> None:
        # The client may go away, speak no TLS or not trust the CA; it says so itself.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
