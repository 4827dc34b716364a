"""A connection of HTTP/1.1: requests one after another, each answered by the application before the next is read."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from t5x_harness.google.serving.answer_framing import plain_answer
from t5x_harness.google.serving.asgi import Scope
from t5x_harness.google.serving.connection import handing_over
from t5x_harness.google.serving.connections import BUSY
from t5x_harness.google.serving.exchange import Exchange
from t5x_harness.google.serving.request_parser import BadRequest, RequestParser

if TYPE_CHECKING:
    from t5x_harness.google.serving.http_server import HttpServer

__all__ = ["HttpProtocol"]


class HttpProtocol(asyncio.BufferedProtocol, asyncio.Protocol):
    """One connection, plain or of TLS.

    Args:
      server: that it belongs to.

    Attributes:
      transport: there once the connection is made.
      waits_since: as of any connection that waits.
      head_since: as of any connection that waits.
    """

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self.waits_since, self.head_since = time.monotonic(), BUSY
        self._server = server
        self._parser = RequestParser()
        self._exchange: Exchange | None = None
        self._early = b""  # of the next request, from a client that does not wait for answers
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def date(self) -> bytes:
        """Of now, as HTTP has it."""
        return self._server.date

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        self.transport = cast(asyncio.Transport, transport)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._state = handing_over({}, lambda: self.transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport."""
        self._server.connections.discard(self)
        self._writable.set()
        if self._exchange is not None:
            self._exchange.wake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the transport: where it puts what it reads."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport right after it has put something there."""
        self.data_received(bytes(self._server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Takes in the next bytes of the connection; called by those who had it before, too."""
        while data:
            if self._parser.over:
                self._early += data
                self.transport.pause_reading()
                return
            try:
                pieces, data = self._parser.feed(data)
            except BadRequest as error:
                self._refuse(error)
                return
            if self._parser.method:
                self._take_in(pieces)
            elif self._parser.begun and self.head_since == BUSY:
                self.head_since = time.monotonic()

    def answer_ended(self) -> None:
        """Called by the exchange; the rest of a request's body that is still to come is dropped."""
        assert self._exchange is not None
        if self._parser.over:
            self._end()
        elif self._exchange.waits:
            self.transport.close()
        else:
            self.transport.resume_reading()

    async def writable(self) -> None:
        """Waits while the client reads more slowly than it is sent to."""
        await self._writable.wait()

    def pause_writing(self) -> None:
        """Called by the transport."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the transport."""
        self._writable.set()

    def give_up(self) -> None:
        """Closes the connection, on which no request has come, or not all of its head."""
        if self.head_since != BUSY:
            self._refuse(BadRequest("its head did not end", 408))
        else:
            self.transport.abort()

    def shut_down(self) -> None:
        """Closes the connection as soon as it is idle."""
        if self._exchange is not None and self._exchange.running:
            self._exchange.keep_alive = False
        else:
            self.transport.close()

    def _take_in(self, pieces: list[bytes]) -> None:
        over = self._parser.over
        if self._exchange is None:
            self.waits_since = self.head_since = BUSY
            waits = not over and not pieces and (b"expect", b"100-continue") in self._parser.headers
            self._exchange = Exchange(self, self._scope(), waits=waits, keep_alive=self._parser.keep_alive)
        exchange = self._exchange
        exchange.take_in(pieces, over=over)
        if exchange.answered and over:
            self._end()
        elif not exchange.running and (pieces or over or exchange.waits):
            # Not with its head alone, which many send by itself: the application would wait for what is on its way.
            exchange.running = True
            self._server.begin(exchange)

    def _scope(self) -> Scope:
        parser = self._parser
        raw_path, _, query = parser.target.partition(b"?")
        path = raw_path.decode("latin-1")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.version,
            "scheme": self._scheme,
            "method": parser.method,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": parser.headers,
            "state": self._state,
        }

    def _end(self) -> None:
        """After a request and its answer: the next one, which may be there already."""
        assert self._exchange is not None
        if not self._exchange.keep_alive:
            self.transport.close()
            return
        self._parser, self._exchange = RequestParser(), None
        self.waits_since = time.monotonic()
        self.transport.resume_reading()
        early, self._early = self._early, b""
        self.data_received(early)

    def _refuse(self, error: BadRequest) -> None:
        if self._exchange is not None and self._exchange.begun:
            self.transport.abort()
            return
        self.transport.write(plain_answer(error.status, f"t5x-harness: this is no request of HTTP/1.1: {error}"))
        self.transport.close()
