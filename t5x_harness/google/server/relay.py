"""Passes bytes on between two connections, no faster than the slower one takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import cast

__all__ = ["Relay"]


class Relay(asyncio.Protocol):
    """One end of a relay: a connection that somebody opened, to be passed on to a port of this machine.

    Args:
      port: gives the port; asked when the connection is there, and may take its time.
      host: that the client asked for; empty if it is not known.
      hosts: is told the host, for as long as the relay lasts, by the number of the port that it comes from.
    """

    def __init__(
        self, port: Callable[[], Awaitable[int]], host: str = "", hosts: MutableMapping[int, str] | None = None
    ) -> None:
        self._port = port
        self._host = host
        self._hosts = {} if hosts is None else hosts
        self._number = 0
        self._other: _End | None = None
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()  # until there is somebody to read for
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            port = await self._port()
            _, other = await asyncio.get_running_loop().create_connection(
                lambda: _End(self._transport), "127.0.0.1", port
            )
        except OSError:  # nobody to pass it on to: the client is told by the end of its connection
            self._transport.abort()
            return
        except BaseException:
            self._transport.abort()
            raise
        if self._transport.is_closing():
            other.transport.close()
            return
        self._other = other
        self._number = other.transport.get_extra_info("sockname")[1]
        self._hosts[self._number] = self._host
        other.transport.write(bytes(self._early))
        self._early.clear()
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Called by the transport, with what goes on to the port."""
        if self._other:
            self._other.transport.write(data)
        else:  # TLS had it decrypted before reading was paused
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport."""
        if self._other:
            self._hosts.pop(self._number, None)
            self._other.transport.close()

    def pause_writing(self) -> None:
        """Called by the transport, when the one who opened the connection reads slowly."""
        if self._other:
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the transport."""
        if self._other:
            self._other.transport.resume_reading()


class _End(asyncio.Protocol):
    """The other end: the connection to the port."""

    def __init__(self, peer: asyncio.Transport) -> None:
        self._peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.close()

    def pause_writing(self) -> None:
        self._peer.pause_reading()

    def resume_writing(self) -> None:
        self._peer.resume_reading()
