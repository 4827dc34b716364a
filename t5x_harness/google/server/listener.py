"""A port of the server, which accepts only connections of its own user."""

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

    asyncio's own server accepts every user's connections, and logs a traceback whenever it runs out of descriptors.

    Args:
      protocol: makes the protocol of a connection.
      port: the port's number; 0 for any.
      tls: the context of a TLS port; None for a plain one.
      peers: decides whose connections are accepted.
      connections: the server's connections; idle ones are closed to make room for new ones.
      log: for the connections that are refused.

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
        """Accepts no more connections; open ones stay open."""
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
                        f"cannot accept a connection: {error.strerror}, and none of the "
                        f"{len(self._connections)} open ones is idle; see ulimit -n"
                    )
                    self._loop.remove_reader(self._socket)
                    self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return  # a closed connection frees its descriptor in the loop's next iteration
            refusal = self._peers.refusal(peer, self._address)
            if refusal is not None:
                connection.close()
                if refusal:
                    self._log.write(
                        f"a connection to port {self.port} is refused: {refusal}; only the user who started the "
                        "emulated Google Cloud, and root, may use it"
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
        # The client may go away, not speak TLS or not trust the CA; it reports that itself.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
