"""One request and its answer, as ASGI has them: what an application receives, and what becomes of what it sends."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TYPE_CHECKING

from t5x_harness.google.serving.answer_framing import AnswerFraming
from t5x_harness.google.serving.asgi import App, Message, Scope

if TYPE_CHECKING:
    from t5x_harness.google.serving.http_protocol import HttpProtocol

__all__ = ["Exchange"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MOST_UNREAD = 1 << 20  # bytes of a body that wait for the application before the client has to wait, too
_ONE_PIECE = 1 << 16  # bytes of a body that are copied behind the head, so that both go out at once


class Exchange:
    """One request and its answer.

    Args:
      connection: that it came on.
      scope: ASGI's.
      waits: whether the client waits to be told before it sends the body.
      keep_alive: whether the client would use the connection again.

    Attributes:
      transport: of the connection.
      running: whether the application has it.
      begun: whether some of the answer has been given to the transport.
      answered: whether all of it has.
      waits: whether the client still waits to be told.
      keep_alive: whether the connection may be used again.
    """

    def __init__(self, connection: HttpProtocol, scope: Scope, *, waits: bool, keep_alive: bool) -> None:
        self.transport = connection.transport
        self.running = self.begun = self.answered = False
        self.waits = waits
        self.keep_alive = keep_alive
        self._connection = connection
        self._scope = scope
        self._unread: list[bytes] = []
        self._news = False  # whether there is something of the body, or its end, that was not received yet
        self._over = False
        self._woken = asyncio.Event()
        self._start: Message | None = None
        self._framing = AnswerFraming(scope["method"], scope["http_version"])

    # For the connection.

    def take_in(self, pieces: list[bytes], *, over: bool) -> None:
        """Takes in pieces of the request's body, and whether that was all."""
        if not self.answered:  # else nobody reads them any more
            self._unread += pieces
            if not over and sum(map(len, self._unread)) >= _MOST_UNREAD:
                self.transport.pause_reading()
        self._news = self._news or bool(pieces) or over
        self._over = over
        self._woken.set()

    def wake(self) -> None:
        """Has the application look again: the client went away."""
        self._woken.set()

    async def run(self, app: App) -> None:
        """Lets the application answer. Its errors break the connection off, unless there is still room for a 500."""
        try:
            await app(self._scope, self.receive, self.send)
            if not self.answered and not self.transport.is_closing():
                raise RuntimeError("the application did not finish its answer")
        except (ConnectionError, asyncio.CancelledError):
            self.transport.abort()  # the client went away, or what was being sent to it, or the server ends
        except Exception:
            print(f"t5x-harness: cannot answer {self._scope['method']} {self._scope['path']}", file=sys.stderr)
            traceback.print_exc()
            self._break_off()

    def _break_off(self) -> None:
        if self.begun or self.transport.is_closing():
            self.transport.abort()
            return
        self.keep_alive = False
        self._start = {"status": 500, "headers": [(b"Content-Type", b"text/plain")]}
        self._write(b"Internal Server Error", more=False)

    # For the application.

    async def receive(self) -> Message:
        """What has come of the body since the last call; waits if that is nothing, after its end for a disconnect."""
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
        """Takes the head of the answer, which goes out with the first of its body, or a piece of the body.

        Raises:
          ConnectionResetError: the client went away.
          RuntimeError: the application does not keep to ASGI, or to its own Content-Length.
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
            self.keep_alive = self.keep_alive and not self.waits  # a body that nobody asked for may come, or not
            head = framing.head(self._start, None if more else len(body), self._connection.date, self.keep_alive)
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
