"""The connection under a request, for what ASGI has no word for: faults end it as a broken network would."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.google.asgi import Scope

__all__ = ["Connection", "connection_of", "handing_over"]

_KEY = "t5x_harness.connection"
_NO_LINGERING = struct.pack("ii", 1, 0)


class Connection:
    """One connection, plain or of TLS.

    Args:
      transport: gives what carries it; asked when it is needed, as TLS puts itself in between later.
    """

    def __init__(self, transport: Callable[[], asyncio.Transport]) -> None:
        self._transport = transport

    def reset(self) -> None:
        """Ends it at once with a TCP RST; what was not sent yet is lost."""
        transport = self._transport()
        # To linger for no time makes the kernel send RST instead of FIN.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        transport.abort()

    def end(self) -> None:
        """Sends what is on its way, and ends it, whether an answer is over or not."""
        self._transport().close()


def handing_over(state: Mapping[str, Any], transport: Callable[[], asyncio.Transport]) -> dict[str, Any]:
    """The ASGI state of a protocol's requests, with the connection under them.

    Whatever protocol serves the requests calls this once for each connection: it is all that faults need of it.
    """
    return {**state, _KEY: Connection(transport)}


def connection_of(scope: Scope) -> Connection:
    """The connection that a request came by.

    Raises:
      RuntimeError: the protocol that served it hands none over.
    """
    found = scope.get("state", {}).get(_KEY)
    if not isinstance(found, Connection):
        raise RuntimeError("the HTTP protocol hands no connection over: its ASGI state has to come from handing_over()")
    return found
