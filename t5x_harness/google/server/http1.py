"""HTTP/1.1 for one ASGI application.

A server has connections, each an asyncio protocol. An exchange is one request on a connection, with its answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from typing import cast
from urllib.parse import unquote

from t5x_harness.google.asgi import CONNECTION, App, ClientConnection, Message, Scope
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.http1_parsing import AnswerFraming, BadRequest, RequestParser, plain_answer
from t5x_harness.google.server.listener import BUSY, Connections

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MOST_UNREAD = 1 << 20  # bytes of a body that wait for the application before the client has to wait
_ONE_PIECE = 1 << 16  # bytes of a body that are sent in one piece with the head
_GRACE_SECONDS = 1.0
_READ_AT_ONCE = 1 << 18  # bytes


class HttpServer:
    """Serves one ASGI application on any number of connections, however they are accepted."""

    def __init__(self, app: App, connections: Connections | None = None) -> None:
        self.connections = Connections() if connections is None else connections
        # All connections read into this before the data is copied: asyncio would allocate 256 KB for each read.
        self.buffer = memoryview(bytearray(_READ_AT_ONCE))
        self._app = app
        self._exchanges: set[asyncio.Task[None]] = set()

    def protocol(self) -> HttpProtocol:
        """Returns the protocol for a new connection, plain or TLS."""
        return HttpProtocol(self)

    def begin(self, exchange: HttpExchange) -> None:
        """Starts the application's answer to a request."""
        task = asyncio.get_running_loop().create_task(exchange.run(self._app))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def stop(self) -> None:
        """Closes idle connections, waits a moment for pending answers, and cancels the rest."""
        for connection in list(self.connections):
            connection.shut_down()
        if self._exchanges:
            _, late = await asyncio.wait(self._exchanges, timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class HttpProtocol(asyncio.BufferedProtocol, asyncio.Protocol):
    """One connection, plain or TLS."""

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self.waits_since, self.head_since = time.monotonic(), BUSY
        self._server = server
        self._parser = RequestParser()
        self._exchange: HttpExchange | None = None
        self._early = b""  # data of the next request, from a client that does not wait for answers
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._state = {CONNECTION: ClientConnection(self.transport)}
        self._server.connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._server.connections.discard(self)
        self._writable.set()
        if self._exchange is not None:
            self._exchange.wake()

    def get_buffer(self, _: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parses what the transport has just read."""
        self.data_received(bytes(self._server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Parses the next bytes. An earlier protocol of the connection also hands over its bytes this way."""
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
        """Continues after an answer. The rest of the request's body is dropped."""
        assert self._exchange is not None
        if self._parser.over:
            self._end()
        elif self._exchange.waits:
            self.transport.close()
        else:
            self.transport.resume_reading()

    async def writable(self) -> None:
        """Waits until the client has read enough of what was sent."""
        await self._writable.wait()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def give_up(self) -> None:
        """Closes the connection because it is idle, or because a head did not end."""
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
            self._exchange = HttpExchange(self, self._scope(), waits=waits, keep_alive=self._parser.keep_alive)
        exchange = self._exchange
        exchange.take_in(pieces, over=over)
        if exchange.answered and over:
            self._end()
        elif not exchange.running and (pieces or over or exchange.waits):
            # Not before the body begins: many clients send the head separately, and the application would only wait.
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
        """Continues with the next request, which may already have arrived."""
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
        self.transport.write(plain_answer(error.status, f"{PRODUCT}: this is not a request of HTTP/1.1: {error}"))
        self.transport.close()


class HttpExchange:
    """One request and its answer."""

    def __init__(self, connection: HttpProtocol, scope: Scope, *, waits: bool, keep_alive: bool) -> None:
        self.transport = connection.transport
        self.running = False  # whether the application has been started
        self.begun = False  # whether part of the answer has been written
        self.answered = False  # whether all of the answer has been written
        self.waits = waits  # whether the client waits for 100 Continue before it sends the body
        self.keep_alive = keep_alive  # whether the connection may be used again
        self._connection = connection
        self._scope = scope
        self._unread: list[bytes] = []
        self._news = False  # whether a part of the body, or its end, is waiting for receive()
        self._over = False
        self._woken = asyncio.Event()
        self._start: Message | None = None
        self._framing = AnswerFraming(scope["method"], scope["http_version"])

    # For the connection.

    def take_in(self, pieces: list[bytes], *, over: bool) -> None:
        """Adds pieces of the request's body, and whether they are the last ones."""
        if not self.answered:  # after the answer, they are no longer read
            self._unread += pieces
            if not over and sum(map(len, self._unread)) >= _MOST_UNREAD:
                self.transport.pause_reading()
        self._news = self._news or bool(pieces) or over
        self._over = over
        self._woken.set()

    def wake(self) -> None:
        """Wakes the application because the client went away."""
        self._woken.set()

    async def run(self, app: App) -> None:
        """Runs the application. After an error, sends a 500 if the answer has not begun, and otherwise aborts."""
        try:
            await app(self._scope, self.receive, self.send)
            if not self.answered and not self.transport.is_closing():
                raise RuntimeError("the application did not finish its answer")
        except (ConnectionError, asyncio.CancelledError):
            self.transport.abort()  # the client went away, a fault cut the answer off, or the server is ending
        except Exception:
            print(f"{PRODUCT}: cannot answer {self._scope['method']} {self._scope['path']}", file=sys.stderr)
            traceback.print_exc()
            if self.begun or self.transport.is_closing():
                self.transport.abort()
                return
            self.keep_alive = False
            self._start = {"status": 500, "headers": [(b"Content-Type", b"text/plain")]}
            self._write(b"Internal Server Error", more=False)

    # For the application.

    async def receive(self) -> Message:
        """Waits for the next part of the body, and after its end for a disconnect."""
        if self.waits and not self.transport.is_closing():
            self.waits = False
            self.transport.write(_CONTINUE)
        while not (self._news or self.answered or self.transport.is_closing()):
            self._woken.clear()
            await self._woken.wait()
        if self.answered or not self._news:
            return {"type": "http.disconnect"}
        self._news = False
        body = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._unread = []
        if not self._over:
            self.transport.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self._over}

    async def send(self, message: Message) -> None:
        """Sends a piece of the answer. The head is held back until the first piece of the body.

        Raises:
          ConnectionResetError: the client went away.
          RuntimeError: the application violates ASGI, or its own Content-Length.
        """
        await self._connection.writable()
        if self.transport.is_closing():
            raise ConnectionResetError("the client went away")
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None and not self.answered:
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not what comes next")

    def _write(self, body: bytes, *, more: bool) -> None:
        framing, head = self._framing, b""
        if not self.begun:
            assert self._start is not None
            self.keep_alive = self.keep_alive and not self.waits  # an unwanted body may still arrive
            head = framing.head(self._start, None if more else len(body), self.keep_alive)
            self.keep_alive = framing.keep_alive
            self.begun = True
        body = framing.framed(body, more=more)
        if len(body) <= _ONE_PIECE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        if not more:
            self.answered = True
            self._woken.set()
            self._connection.answer_ended()
