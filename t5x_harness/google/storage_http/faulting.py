"""Cloud Storage with faults and a record of requests: an application around the one that answers."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.google.asgi import App, Receive, Scope, Send, answer_json, body_of, header_of
from t5x_harness.google.faults import Fault, RecordedRequest
from t5x_harness.google.identity import PRIVATE, UNRECORDED
from t5x_harness.google.storage.globs import compile_glob
from t5x_harness.google.storage_http import app as storage
from t5x_harness.google.storage_http.operations import Meaning, meaning_of, name_in_body, parameters_of
from t5x_harness.google.storage_http.spoiling import Exchange

_KEPT = 100_000
_ENDING_SECONDS = 10.0


@dataclasses.dataclass
class _Armed:
    """A fault, and how many requests it was for and how many met it."""

    fault: Fault
    seen: int = 0
    met: int = 0

    def meets(self, meant: Meaning) -> bool:
        """Whether this request meets the fault; counts it."""
        fault = self.fault
        if (fault.on and fault.on != meant.operation) or (fault.times is not None and self.met >= fault.times):
            return False
        if fault.match and not compile_glob(fault.match).matches(meant.object):
            return False
        self.seen += 1
        if self.seen <= fault.after:
            return False
        self.met += 1
        return True


class _Faulting:
    def __init__(self, app: App) -> None:
        self._app = app
        self._armed: list[_Armed] = []
        self._record: collections.deque[RecordedRequest] = collections.deque(maxlen=_KEPT)
        self._running: set[Exchange] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or header_of(scope, UNRECORDED.encode()):
            return await self._app(scope, receive, send)
        if scope["path"] == f"{PRIVATE}/faults":
            return await self._administer(scope, receive, send)
        await self._exchange(scope, receive, send)

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._cut_ones_end()
        if scope["method"] == "POST":
            self._armed.append(_Armed(Fault(**json.loads(await body_of(receive)))))
        elif scope["method"] == "DELETE":
            self._armed.clear()
            self._record.clear()
        faults = [{"fault": dataclasses.asdict(armed.fault), "met": armed.met} for armed in self._armed]
        await answer_json(send, 200, {"faults": faults, "requests": [dataclasses.asdict(r) for r in self._record]})

    async def _cut_ones_end(self) -> None:
        """Waits for exchanges that are over for their clients, but not here: who asks may be such a client."""
        if ending := [exchange.over for exchange in self._running if exchange.cut]:
            await asyncio.wait(ending, timeout=_ENDING_SECONDS)

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = parameters_of(scope)
        meant = meaning_of(scope, parameters)
        exchange = Exchange(scope, receive, send)
        if meant.operation == "upload" and not meant.object and "upload_id" not in parameters:
            meant = meant._replace(object=await name_in_body(receive, exchange.early))
        armed = next((armed for armed in self._armed if armed.meets(meant)), None)
        exchange.fault = armed.fault if armed else None
        self._running.add(exchange)
        try:
            await exchange.run(self._app)
        finally:
            self._running.remove(exchange)
            if armed and not exchange.spoilt:
                armed.met -= 1  # there was nothing to spoil, so it is for another request still
            self._record.append(_recorded(scope, parameters, meant, exchange))
            exchange.over.set_result(None)


def make_app(root: Path) -> App:
    """Cloud Storage over a folder, with the private path ``/_t5x_harness/faults``.

    Raises:
      StorageError: the folder cannot be had.
    """
    return _Faulting(storage.make_app(root))


def _recorded(scope: Scope, parameters: Mapping[str, str], meant: Meaning, exchange: Exchange) -> RecordedRequest:
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
        fault=exchange.fault.kind if exchange.fault and exchange.spoilt else "",
    )
