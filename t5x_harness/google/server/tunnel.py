"""The proxy: Google's hosts are answered here, and all others refused. Nothing passes through to a network."""

import asyncio
import collections
import contextlib
import re
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import cast
from urllib.parse import unquote

from t5x_harness.google.asgi import App, Receive, Scope, Send, answer
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.hosts import is_served
from t5x_harness.google.server.http1_parsing import LONGEST_HEAD, plain_answer
from t5x_harness.google.server.listener import BUSY, Connections


def relay(
    port: Callable[[], Awaitable[int]], host: str = "", hosts: MutableMapping[int, str] | None = None
) -> asyncio.Protocol:
    """Returns the protocol of a connection that is relayed to a port of this machine, as fast as both ends accept it.

    Args:
      port: a function that returns the port. It is called when a client has connected, and may take time.
      host: the host that the client asked for; empty if it is not known.
      hosts: a map from the local port of the relay's other end to the host; it has an entry while the relay lasts.
    """
    hosts = {} if hosts is None else hosts

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", await port())
        except OSError:  # the port is closed: the client sees the end of its connection
            writer.transport.abort()
            return
        number = back.get_extra_info("sockname")[1]
        hosts[number] = host
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            del hosts[number]

    return asyncio.StreamReaderProtocol(asyncio.StreamReader(), connected)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until either side ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


_CONNECT = b"CONNECT "
_HANDSHAKE_SECONDS = 60.0
_CONTROL = re.compile(r"[^\x20-\x7e]")


class Refusals:
    """The hosts that were refused, and how often. Each is reported once on standard error."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def refuse(self, target: str, message: str = "") -> str:
        """Counts a refusal, and returns the line for the client; by default, that only Google's hosts are emulated."""
        target = _CONTROL.sub("?", target)[:300]
        self.counts[target] += 1
        message = message or (
            f"{PRODUCT} refuses {target}: only Google's API hosts are emulated here (*.googleapis.com), "
            "and nothing passes through to the network"
        )
        if self.counts[target] == 1:
            print(message, file=sys.stderr, flush=True)
        return message


def with_whole_urls(app: App, refusals: Refusals) -> App:
    """Wraps an application so that it also takes whole URLs (``GET http://host/path``), which a proxy gets."""

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["raw_path"].startswith(b"/"):
            return await app(scope, receive, send)
        # The target was parsed as a path; the query is already separate.
        scheme, separator, rest = scope["raw_path"].decode("latin-1").partition("://")
        authority, _, path = rest.partition("/")
        host, port = _host_and_port(authority, 80)
        if scheme.lower() != "http" or port != 80 or not is_served(host):
            message = refusals.refuse(authority if separator else scheme)
            kind = {"content-type": "text/plain", "connection": "close"}
            return await answer(send, 403, f"{message}\n".encode(), kind, reason=message)
        headers = [(b"host", authority.encode("latin-1")), *((k, v) for k, v in scope["headers"] if k != b"host")]
        raw_path = f"/{path}"
        return await app(
            {**scope, "raw_path": raw_path.encode("latin-1"), "path": unquote(raw_path), "headers": headers},
            receive,
            send,
        )

    return whole


class Proxy(asyncio.Protocol):
    """One connection to the proxy.

    Args:
      context: the TLS context of the server's end of a tunnel.
      inside: a function that makes the protocol inside a tunnel to a host. It is connected once TLS has begun.
      plain: a function that makes the protocol of a connection that is not a tunnel.
      connections: the open connections, which include this one until it becomes a tunnel or plain HTTP.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inside: Callable[[str], asyncio.Protocol],
        plain: Callable[[], asyncio.Protocol],
        refusals: Refusals,
        connections: Connections,
    ) -> None:
        self.waits_since, self.head_since = time.monotonic(), BUSY
        self._connections = connections
        self._context = context
        self._inside = inside
        self._plain = plain
        self._refusals = refusals
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)

    def give_up(self) -> None:
        """Closes the connection because it is idle, or because a head did not end."""
        if self.head_since != BUSY:
            self._close(408, f"{PRODUCT}: the head of the request did not end")
        else:
            self.shut_down()

    def shut_down(self) -> None:
        """Closes the connection."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collects the head, until the connection has become a tunnel or plain HTTP."""
        self._head += data
        if not self._head.startswith(_CONNECT[: len(self._head)]):
            self._connections.discard(self)
            protocol = self._plain()
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            protocol.data_received(bytes(self._head))
            return
        if self.head_since == BUSY:
            self.head_since = time.monotonic()
        head, end, early = bytes(self._head).partition(b"\r\n\r\n")
        if end:
            self._connect(head.split(b"\r\n", 1)[0].decode("latin-1"), early)
        elif len(self._head) > LONGEST_HEAD:
            self._close(400, f"{PRODUCT}: a request of more than {LONGEST_HEAD} bytes")

    def _connect(self, line: str, early: bytes) -> None:
        target, _, version = line.removeprefix("CONNECT ").partition(" ")
        host, port = _host_and_port(target, 0)
        if not version.startswith("HTTP/1.") or not host or port <= 0:
            self._close(400, f"{PRODUCT}: CONNECT takes HOST:PORT, as in CONNECT storage.googleapis.com:443")
        elif not is_served(host) or port != 443:
            # Some clients show only the reason, and others only the body.
            message = self._refusals.refuse(target)
            self._close(403, message, reason=message)
        elif early:
            self._close(400, f"{PRODUCT}: data arrived before the tunnel was established")
        else:
            self._connections.discard(self)
            self._transport.pause_reading()  # the bytes that come next are for TLS
            self._transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._task = asyncio.get_running_loop().create_task(self._begin_tls(host.lower().removesuffix(".")))

    async def _begin_tls(self, host: str) -> None:
        protocol = self._inside(host)
        try:
            connection = await asyncio.get_running_loop().start_tls(
                self._transport,
                protocol,
                self._context,
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except OSError:
            # The client went away, does not speak TLS or does not trust the CA; it reports that itself.
            self._transport.abort()
            return
        if connection is not None:
            protocol.connection_made(connection)

    def _close(self, status: int, text: str, reason: str = "") -> None:
        self._connections.discard(self)
        self._transport.write(plain_answer(status, text, reason))
        self._transport.close()


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    """Splits ``host:port``; the port is -1 if it is not a number."""
    host, colon, digits = authority.rpartition(":")
    if not colon or digits.endswith("]"):  # the last colon is inside an IPv6 address
        return authority, default
    return host, int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else -1


class ByProtocol(asyncio.Protocol):
    """A TLS connection that becomes HTTP/1.1 or HTTP/2 after its handshake.

    Clients of gRPC offer only ``h2`` and get it. All others also offer HTTP/1.1, or offer nothing, and get HTTP/1.1.

    Args:
      http: a function that makes the protocol for HTTP/1.1.
      grpc: a function that makes the protocol for HTTP/2 to a host.
      host: the host that the client asked for; empty if it is not known.
    """

    def __init__(
        self, http: Callable[[], asyncio.Protocol], grpc: Callable[[str], asyncio.Protocol], host: str = ""
    ) -> None:
        self._http, self._grpc, self._host = http, grpc, host
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = self._grpc(self._host) if agreed == "h2" else self._http()
        connection = cast(asyncio.Transport, transport)
        connection.set_protocol(protocol)
        protocol.connection_made(connection)
        if self._early:
            protocol.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """Keeps bytes that arrive before ``connection_made``, as they may when TLS begins inside a tunnel."""
        self._early += data
