"""ASGI: types, complete answers, and errors in Google's form."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from t5x_harness.google.product import PACKAGE

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class StorageApp(Protocol):
    """An application that keeps files open until it is closed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    @property
    def close(self) -> Callable[[], None]:
        """Closes the files; called in a thread when the server ends."""


NOT_EMULATED = 403
"""The status for anything that is not emulated. Clients would retry a 501 for half a minute, then blame the network."""

_REASONS = {400: "badRequest", 401: "authError", 403: "forbidden", 404: "notFound"}
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


def header_of(scope: Scope, name: bytes) -> str:
    """Returns a header of a request by its lower-case name, or an empty string."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def body_of(receive: Receive, limit: int = 1 << 20) -> bytes:
    """Returns a request's whole body; raises ValueError if it is longer than ``limit`` bytes."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limit:
            raise ValueError(f"a body of more than {limit} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def answer(
    send: Send, status: int, body: bytes, headers: Mapping[str, str], *, reason: str | None = None
) -> None:
    """Sends a complete answer; ``reason`` replaces the usual phrase of the status."""
    named = {"content-length": str(len(body)), **headers}
    start: Message = {"type": "http.response.start", "status": status, "headers": raw_headers(named)}
    await send(start if reason is None else {**start, "reason": reason.encode("ascii", "replace")})
    await send({"type": "http.response.body", "body": body})


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Returns headers for ASGI, with capitalized names: TensorFlow looks for ``Location`` in exactly this case."""
    return [(name.title().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def answer_json(send: Send, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
    body = json.dumps(value).encode()
    await answer(send, status, body, {"content-type": "application/json; charset=UTF-8", **(headers or {})})


async def answer_error(send: Send, status: int, message: str) -> None:
    """Sends an error as Google's JSON APIs do."""
    await answer_json(send, status, _error(status, message))


def not_emulated(message: str) -> dict[str, Any]:
    """Returns the error for anything that is not emulated: Google's error for an API that is not enabled."""
    body = _error(NOT_EMULATED, message)
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
    }
    body["error"]["details"] = [info]
    return body


def _error(status: int, message: str) -> dict[str, Any]:
    details = [{"message": message, "domain": "global", "reason": _REASONS[status]}]
    return {"error": {"code": status, "message": message, "status": _STATUSES[status], "errors": details}}


CONNECTION = f"{PACKAGE}.connection"
"""The key of a request's :class:`ClientConnection` in its ASGI state."""

_NO_LINGERING = struct.pack("ii", 1, 0)


class ClientConnection:
    """A client's connection, plain or TLS. The server puts it into the ASGI state of requests, for faults."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def reset(self) -> None:
        """Closes the connection immediately with a TCP RST; unsent data is lost."""
        # With a linger time of zero, the kernel sends RST instead of FIN.
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        self._transport.abort()

    def end(self) -> None:
        """Closes the connection after the data written so far, even in the middle of an answer."""
        self._transport.close()


def connection_of(scope: Scope) -> ClientConnection:
    """Returns the connection of a request."""
    found: ClientConnection = scope["state"][CONNECTION]
    return found
