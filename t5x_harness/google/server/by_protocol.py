"""One TLS port for HTTPS and gRPC: what the handshake agreed on decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

__all__ = ["ByProtocol"]


class ByProtocol(asyncio.Protocol):
    """A TLS connection that turns into one of HTTP/1.1 or of HTTP/2 when its handshake is done.

    Clients of gRPC offer ``h2`` alone and get it; all others offer HTTP/1.1, too, or nothing, and get HTTP/1.1.

    Args:
      http: makes the protocol for HTTP/1.1.
      grpc: makes the protocol for HTTP/2, told the host.
      host: that the client asked for; empty if it is not known.
    """

    def __init__(
        self, http: Callable[[], asyncio.Protocol], grpc: Callable[[str], asyncio.Protocol], host: str = ""
    ) -> None:
        self._http, self._grpc, self._host = http, grpc, host
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called after the handshake."""
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = self._grpc(self._host) if agreed == "h2" else self._http()
        connection = cast(asyncio.Transport, transport)
        connection.set_protocol(protocol)
        protocol.connection_made(connection)
        if self._early:
            protocol.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """Called where TLS begins in the middle of a connection: its first bytes may be here before it is announced."""
        self._early += data
