"""Cloud Storage with faults and a record of requests: an application that wraps the one that answers."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.google.asgi import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    StorageApp,
    answer_json,
    body_of,
    connection_of,
    header_of,
)
from t5x_harness.google.faults import ArmedFaults, Fault, RecordedRequest
from t5x_harness.google.identity import PRIVATE, UNRECORDED
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import StoreError
from t5x_harness.google.storage.names import compile_glob
from t5x_harness.google.storage_http import app as storage
from t5x_harness.google.storage_http.answers import error_json, error_xml
from t5x_harness.google.storage_http.request import RequestTarget, is_json_api, meaning_of, name_in_body, parse_query

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

    async def run(self, app: App) -> None:
        """Lets the application answer, subject to the fault."""
        match self.fault:
            case Fault(kind="fail", value=status):
                self.injected = True
                await self._fail(int(status))
                return
            case Fault(kind="stall", value=seconds):
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
            if not self.cut:
                raise
        while self.cut and (await self._receive())["type"] != "http.disconnect":
            pass  # until the server knows of the cut, it would report a missing answer

    async def _fail(self, status: int) -> None:
        while (message := await self._take())["type"] == "http.request" and message.get("more_body", False):
            pass  # otherwise a client that is still sending would see a reset
        reason, code = _AS_GOOGLE_SAYS.get(status, ("backendError", "ServiceUnavailable"))
        error = StoreError(f"{PRODUCT}: {self.fault}", reason=reason, code=code)
        error.status = status
        answered = error_json(error) if is_json_api(self._scope) else error_xml(error)
        await answered.send(self._give, head=self._scope["method"] == "HEAD")

    async def _take(self) -> Message:
        if self.cut:
            return {"type": "http.disconnect"}
        message = self.early.pop(0) if self.early else await self._receive()
        body = message.get("body", b"")
        if self.fault and self.fault.kind == "reset":
            left = int(self.fault.value) - self.received
            if len(body) > left:
                if left <= 0:
                    self._reset()
                    return {"type": "http.disconnect"}
                self.early.insert(0, {**message, "body": body[left:]})
                message, body = {**message, "body": body[:left], "more_body": True}, body[:left]
        self.received += len(body)
        if self.fault and self.fault.kind == "slow":
            await asyncio.sleep(len(body) / self.fault.value)
        return message

    async def _give(self, message: Message) -> None:
        if self.fault and self.fault.kind == "lose":
            self._reset()
        if self.cut:
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

    def _reset(self) -> None:
        if not self.cut:
            self.injected = self.cut = True
            connection_of(self._scope).reset()


_ENDING_SECONDS = 10.0


class _Faulting:
    def __init__(self, app: StorageApp) -> None:
        self._app = app
        self.close = app.close
        self._faults: ArmedFaults[Fault] = ArmedFaults()
        self._running: set[Exchange] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if header_of(scope, UNRECORDED.encode()):
            await self._app(scope, receive, send)
        elif scope["path"] == f"{PRIVATE}/faults":
            await self._administer(scope, receive, send)
        else:
            await self._exchange(scope, receive, send)

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Waits for exchanges that have so far ended only for their clients; the caller may be one of these.
        if ending := [exchange.over for exchange in self._running if exchange.cut]:
            await asyncio.wait(ending, timeout=_ENDING_SECONDS)
        if scope["method"] == "POST":
            self._faults.arm(Fault(**json.loads(await body_of(receive))))
        elif scope["method"] == "DELETE":
            self._faults.clear()
        await answer_json(send, 200, self._faults.report())

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = parse_query(scope["query_string"])
        meant = meaning_of(scope, parameters)
        exchange = Exchange(scope, receive, send)
        if meant.operation == "upload" and not meant.object and "upload_id" not in parameters:
            meant = meant._replace(object=await name_in_body(receive, exchange.early))
        exchange.fault = self._faults.take(lambda fault: _is_for(fault, meant))
        self._running.add(exchange)
        try:
            await exchange.run(self._app)
        finally:
            self._running.remove(exchange)
            if exchange.fault and not exchange.injected:
                self._faults.give_back(exchange.fault)
            self._faults.record(_recorded(scope, parameters, meant, exchange))
            exchange.over.set_result(None)


def make_app(root: Path) -> StorageApp:
    """Returns Cloud Storage over a folder, with the private path ``PRIVATE/faults``.

    Raises the errors of ``app.make_app``.
    """
    return _Faulting(storage.make_app(root))


def _is_for(fault: Fault, meant: RequestTarget) -> bool:
    if fault.on and fault.on != meant.operation:
        return False
    return not fault.match or compile_glob(fault.match).matches(meant.object)


def _recorded(scope: Scope, parameters: Mapping[str, str], meant: RequestTarget, exchange: Exchange) -> RecordedRequest:
    conditions = {key: value for key, value in parameters.items() if key.startswith("if")}
    conditions |= {
        k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k.startswith((b"x-goog-if-", b"if-"))
    }
    return RecordedRequest(
        *meant,
        status=exchange.status,
        received=exchange.received,
        sent=exchange.sent,
        user_agent=header_of(scope, b"user-agent"),
        conditions=conditions,
        fault=exchange.fault.kind if exchange.fault and exchange.injected else "",
    )
