"""One exchange of a request and its answer, which a fault may change."""

import asyncio

from t5x_harness.google.asgi import App, Message, Receive, Scope, Send, connection_of
from t5x_harness.google.faults import Fault
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import StoreError
from t5x_harness.google.storage_http.answers import error_json, error_xml
from t5x_harness.google.storage_http.request import is_json_api

_AS_GOOGLE_SAYS = {
    400: ("badRequest", "InvalidArgument"),
    401: ("authError", "AuthenticationRequired"),
    403: ("forbidden", "AccessDenied"),
    404: ("notFound", "NoSuchKey"),
    408: ("uploadBrokenConnection", "RequestTimeout"),
    409: ("conflict", "Conflict"),
    412: ("conditionNotMet", "PreconditionFailed"),
    416: ("requestedRangeNotSatisfiable", "InvalidRange"),
    429: ("rateLimitExceeded", "TooManyRequests"),
    500: ("backendError", "InternalError"),
}
"""Reason and code in the two APIs, by status; any other status is an error of the backend."""

_TICK = 0.1
"""Seconds between two pieces of a slow body."""


class Exchange:
    """One exchange of a request and its answer, with its counts, and with a fault that may change it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.early: list[Message] = []  # messages of the request that were received before
        self.fault: Fault | None = None
        self.status = 0  # of the answer; 0 until it starts
        self.received = self.sent = 0  # bytes of the request's and of the answer's body
        self.injected = False  # whether the fault had an effect: it has none on a body that ends before the cut
        self.cut = False  # whether the fault has cut the client's connection
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done when this is recorded
        self._failing = False  # whether the application has lost the request's body, and an error is due

    async def run(self, app: App) -> None:
        """Lets the application answer, subject to the fault."""
        match self.fault:
            case Fault(kind="fail", bytes=0):
                await self._fail()
                return
            case Fault(kind="stall", bytes=0, value=seconds):
                self.injected = True
                await asyncio.sleep(seconds)
            case Fault(kind="slow"):
                self.injected = True
            case Fault(kind="reset", value=0):
                self._reset()
        try:
            if not self.cut:
                await app(self._scope, self._take, self._give)
        except ConnectionResetError:
            if not self.cut and not self._failing:
                raise
        if self._failing:
            await self._fail()
        while self.cut and (await self._receive())["type"] != "http.disconnect":
            pass  # until the server knows of the cut, it would report a missing answer

    async def _fail(self) -> None:
        assert self.fault is not None
        self.injected, self._failing, status = True, False, int(self.fault.value)
        while (message := await self._take())["type"] == "http.request" and message.get("more_body", False):
            pass  # otherwise a client that is still sending would see a reset
        reason, code = _AS_GOOGLE_SAYS.get(status, ("backendError", "ServiceUnavailable"))
        error = StoreError(f"{PRODUCT}: {self.fault}", reason=reason, code=code)
        error.status = status
        answered = error_json(error) if is_json_api(self._scope) else error_xml(error)
        await answered.send(self._give, head=self._scope["method"] == "HEAD")

    async def _take(self) -> Message:
        if self.cut or self._failing:
            return {"type": "http.disconnect"}
        message = self.early.pop(0) if self.early else await self._receive()
        body = message.get("body", b"")
        most = self._most_received()
        if most is not None and len(body) > (left := most - self.received):
            self.early.insert(0, {**message, "body": body[max(0, left) :]})
            if left <= 0:
                self._break_off()
                return {"type": "http.disconnect"}
            message, body = {**message, "body": body[:left], "more_body": True}, body[:left]
        self.received += len(body)
        match self.fault:
            case Fault(kind="slow", value=pace):
                await asyncio.sleep(len(body) / pace)
            case Fault(kind="stall", value=seconds, bytes=most) if not self.injected and self.received > most:
                self.injected = True
                await asyncio.sleep(seconds)
        return message

    def _most_received(self) -> int | None:
        """Returns the number of bytes of the body after which the fault ends the request, or None."""
        match self.fault:
            case Fault(kind="reset", value=most):
                return int(most)
            case Fault(kind="fail", bytes=most) if not self.injected:
                return most
        return None

    def _break_off(self) -> None:
        """Ends the request for the application, and if it is not to be answered, for the client."""
        if self.fault and self.fault.kind == "fail":
            self._failing = True
        else:
            self._reset()

    async def _give(self, message: Message) -> None:
        if self.fault and self.fault.kind == "lose":
            self._reset()
        if self.cut or self._failing:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._send(message)
            return
        body = message.get("body", b"")
        match self.fault:
            case Fault(kind="truncate", value=most) if len(body) > most - self.sent:
                self.injected = self.cut = True
                last = body[: int(most) - self.sent]
                self.sent += len(last)
                await self._send({"type": "http.response.body", "body": last, "more_body": True})
                connection_of(self._scope).end()
            case Fault(kind="stall", bytes=most) if not self.injected and len(body) > most - self.sent:
                await self._stall(message, most - self.sent)
            case Fault(kind="slow", value=pace) if body:
                await self._trickle(message, pace)
            case _:
                self.sent += len(body)
                await self._send(message)

    async def _trickle(self, message: Message, pace: float) -> None:
        """Sends a piece of a body in small steps, so that the client sees progress."""
        body = message["body"]
        step = max(1, int(pace * _TICK))
        for start in range(0, len(body), step):
            piece = body[start : start + step]
            await asyncio.sleep(len(piece) / pace)
            more = message.get("more_body", False) or start + step < len(body)
            self.sent += len(piece)
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _stall(self, message: Message, first: int) -> None:
        """Sends a piece of a body, with a pause after its first bytes."""
        assert self.fault is not None
        body = message["body"]
        self.injected = True
        await self._send({"type": "http.response.body", "body": body[:first], "more_body": True})
        await asyncio.sleep(self.fault.value)
        self.sent += len(body)
        await self._send({**message, "body": body[first:]})

    def _reset(self) -> None:
        if not self.cut:
            self.injected = self.cut = True
            connection_of(self._scope).reset()
