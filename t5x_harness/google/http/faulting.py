"""Cloud Storage with faults and a record of requests: an application around the one that answers."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from t5x_harness.google.faults import Fault, RecordedRequest
from t5x_harness.google.http import app as storage
from t5x_harness.google.serving.asgi import App, Message, Receive, Scope, Send, answer_json, body_of, header_of
from t5x_harness.google.serving.endpoints import PRIVATE
from t5x_harness.google.storage.globs import glob_to_regex

__all__ = ["UNRECORDED", "make_app"]

UNRECORDED = "x-t5x-harness-unrecorded"
"""A header of the harness's own requests, which meet no fault and are not recorded."""

_KEPT = 100_000
_LONGEST_METADATA = 64 << 10
_NAME = re.compile(rb'"name"\s*:\s*("(?:[^"\\]|\\.)*")')
_JSON_PATH = re.compile(r"(?:/resumable)?(?:/(upload|download))?/storage/v1/b(?:/([^/]+))?(?:/o(?:/(.+))?)?$")
_POSTED = re.compile(r"(.+?)/(compose|copyTo|rewriteTo)(?:/.*)?$")
_VERBS = {"GET": "get", "HEAD": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "patch", "POST": "upload"}
_OF_BUCKET = {**_VERBS, "POST": "create"}
_POSTED_AS = {"compose": "compose", "copyTo": "copy", "rewriteTo": "rewrite"}


@dataclasses.dataclass
class _Armed:
    fault: Fault
    seen: int = 0
    met: int = 0

    def meets(self, operation: str, name: str) -> bool:
        """Whether this request meets the fault; counts it."""
        fault = self.fault
        if (fault.on and fault.on != operation) or (fault.times is not None and self.met >= fault.times):
            return False
        if fault.match and not glob_to_regex(fault.match).fullmatch(name):
            return False
        self.seen += 1
        self.met += self.seen > fault.after
        return self.seen > fault.after


class _Faulting:
    def __init__(self, app: App) -> None:
        self._app = app
        self._armed: list[_Armed] = []
        self._record: collections.deque[RecordedRequest] = collections.deque(maxlen=_KEPT)
        self._uploads: dict[str, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or header_of(scope, UNRECORDED.encode()):
            return await self._app(scope, receive, send)
        if scope["path"] == f"{PRIVATE}/faults":
            return await self._administer(scope, receive, send)
        await self._exchange(scope, receive, send)

    async def _administer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            self._armed.append(_Armed(Fault(**json.loads(await body_of(receive)))))
        elif scope["method"] == "DELETE":
            self._armed.clear()
            self._record.clear()
        faults = [{"fault": dataclasses.asdict(armed.fault), "met": armed.met} for armed in self._armed]
        await answer_json(send, 200, {"faults": faults, "requests": [dataclasses.asdict(r) for r in self._record]})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        operation, bucket, name = _meant(scope, parameters)
        early: list[Message] = []
        if operation == "upload" and not name:
            name = self._uploads.get(parameters.get("upload_id", "")) or await _name_in_body(receive, early)
        armed = next((armed for armed in self._armed if armed.meets(operation, name)), None)
        link = _Link(receive, send, early, armed.fault if armed else None)
        try:
            await link.run(self._app, scope)
        finally:
            if upload := re.search(r"upload_id=([^&]+)", link.location):
                self._uploads[unquote(upload[1])] = name
            conditions = {key: value for key, value in parameters.items() if key.startswith("if")}
            conditions |= {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k.startswith(b"x-goog-if-")}
            agent, kind = header_of(scope, b"user-agent"), armed.fault.kind if armed else ""
            self._record.append(
                RecordedRequest(operation, bucket, name, link.status, link.received, link.sent, agent, conditions, kind)
            )


class _Link:
    """One exchange, counted, and spoilt as a fault has it."""

    def __init__(self, receive: Receive, send: Send, early: list[Message], fault: Fault | None) -> None:
        self._receive, self._send, self._early, self._fault = receive, send, early, fault
        self.status = self.received = self.sent = 0
        self.location = ""
        self._cut = False

    async def run(self, app: App, scope: Scope) -> None:
        match self._fault:
            case Fault(kind="fail", value=status):
                return await self._fail(int(status))
            case Fault(kind="reset"):
                return _reset(self._send)
            case Fault(kind="stall", value=seconds):
                await asyncio.sleep(seconds)
        await app(scope, self._take, self._give)

    async def _fail(self, status: int) -> None:
        while (message := await self._take())["type"] == "http.request" and message.get("more_body", False):
            pass  # a client that still sends would see a reset
        text = f"t5x-harness: {self._fault}"
        errors = [{"message": text, "domain": "global", "reason": "backendError"}]
        await answer_json(self._give, status, {"error": {"code": status, "message": text, "errors": errors}})

    async def _take(self) -> Message:
        message = self._early.pop(0) if self._early else await self._receive()
        size = len(message.get("body", b""))
        self.received += size
        await self._pace(size)
        return message

    async def _give(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {key.lower(): value for key, value in message["headers"]}
            self.location = headers.get(b"location", b"").decode("latin-1")
            return await self._send(message)
        body = message.get("body", b"")
        if self._fault and self._fault.kind == "truncate":
            left = int(self._fault.value) - self.sent
            if len(body) > left and not self._cut:
                self._cut = True
                self.sent += left
                await self._send({"type": "http.response.body", "body": body[:left], "more_body": True})
                _transport(self._send).close()
                return
        if not self._cut:
            self.sent += len(body)
            await self._pace(len(body))
            await self._send(message)

    async def _pace(self, size: int) -> None:
        if self._fault and self._fault.kind == "slow":
            await asyncio.sleep(size / self._fault.value)


def make_app(root: Path) -> App:
    """Cloud Storage over a folder, with the private path ``/_t5x_harness/faults``.

    Raises:
      StorageError: the folder cannot be had.
    """
    return _Faulting(storage.make_app(root))


def _meant(scope: Scope, parameters: Mapping[str, str]) -> tuple[str, str, str]:
    """Operation, bucket and object of a request."""
    path, method = scope["raw_path"].decode("latin-1").partition("?")[0], scope["method"]
    if path.startswith("/batch"):
        return "batch", "", ""
    found = _JSON_PATH.match(path)
    if not found and path.startswith(("/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/")):
        return "other", "", ""
    if not found:
        return _meant_by_xml(scope, path, method)
    kind, bucket, name = found[1], unquote(found[2] or ""), found[3] or ""
    if kind == "upload":
        return "upload", bucket, parameters.get("name", "")
    if name:
        if method == "POST" and (posted := _POSTED.match(name)):
            return _POSTED_AS[posted[2]], bucket, unquote(posted[1])
        media = method == "GET" and (kind == "download" or parameters.get("alt") == "media")
        return "download" if media else _VERBS.get(method, "other"), bucket, unquote(name)
    if path.endswith("/o"):
        return "list", bucket, ""
    return f"bucket.{_OF_BUCKET.get(method, 'get') if bucket or method != 'GET' else 'list'}", bucket, ""


def _meant_by_xml(scope: Scope, path: str, method: str) -> tuple[str, str, str]:
    host, dot, _ = header_of(scope, b"host").partition(".storage.googleapis.com")
    bucket, _, name = (host, "", path[1:]) if dot else path[1:].partition("/")
    if name:
        copied = method == "PUT" and header_of(scope, b"x-goog-copy-source")
        verbs = {**_VERBS, "GET": "download", "PUT": "copy" if copied else "upload"}
        return verbs.get(method, "other"), unquote(bucket), unquote(name)
    if bucket and method == "GET":
        return "list", unquote(bucket), ""
    return f"bucket.{({**_OF_BUCKET, 'PUT': 'create'}).get(method, 'get') if bucket else 'list'}", unquote(bucket), ""


async def _name_in_body(receive: Receive, early: list[Message]) -> str:
    """The name in an upload's metadata, at the beginning of its body; what was read is kept in ``early``."""
    head = b""
    while len(head) < _LONGEST_METADATA:
        message = await receive()
        early.append(message)
        head += message.get("body", b"")
        if found := _NAME.search(head):
            return str(json.loads(found[1]))
        if not message.get("more_body", False):
            break
    return ""


def _transport(send: Send) -> Any:
    """The connection under an exchange: ASGI has no word for it, uvicorn's ``send`` is a method of what holds it."""
    return send.__self__.transport  # type: ignore[attr-defined]


def _reset(send: Send) -> None:
    transport = _transport(send)
    # To linger for no time makes the kernel send RST instead of FIN.
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
