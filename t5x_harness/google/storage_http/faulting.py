"""Cloud Storage with faults and a record of requests: an application that wraps the one that answers."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.google.asgi import Receive, Scope, Send, StorageApp, answer_json, body_of, header_of
from t5x_harness.google.faults import ArmedFaults, Fault, RecordedRequest
from t5x_harness.google.identity import PRIVATE, UNRECORDED
from t5x_harness.google.storage.names import compile_glob
from t5x_harness.google.storage_http import app as storage
from t5x_harness.google.storage_http.exchange import Exchange
from t5x_harness.google.storage_http.request import RequestTarget, meaning_of, name_in_body, parse_query
from t5x_harness.google.storage_http.retry_tests import is_retry_api

_ENDING_SECONDS = 10.0


class _Faulting:
    def __init__(self, app: StorageApp) -> None:
        self._app = app
        self.close = app.close
        self._faults: ArmedFaults[Fault] = ArmedFaults()
        self._running: set[Exchange] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if header_of(scope, UNRECORDED.encode()) or is_retry_api(scope):
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
