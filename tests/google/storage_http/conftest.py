"""Calls the application in this process: without a socket, and with one answer per call."""

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from discovery import description, faults_of_storage, storage_path

from t5x_harness.google.storage_http.app import make_app


@dataclasses.dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Calls the application; ``pieces`` are the messages in which the body arrives.

    Its answers are compared with Google's description, but for those that begin with one of ``as_given``: parts of a
    bucket that the emulation keeps as they are given.
    """

    def __init__(self, root: Path, *as_given: str) -> None:
        self.root = root
        self._as_given = as_given
        self._app = make_app(root)

    def __call__(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str | bytes] | None = None,
        *,
        pieces: Sequence[bytes] | None = None,
        breaks: bool = False,
    ) -> Reply:
        path, _, query = target.partition("?")
        given = list(pieces if pieces is not None else [body])
        messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in given]
        if breaks:
            messages.append({"type": "http.disconnect"})
        else:
            messages[-1]["more_body"] = False
        sent: list[Any] = []

        async def receive() -> Any:
            assert messages, "asked for more than the body: a server would wait here for ever"
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        named = {"host": "storage.googleapis.com", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "scheme": "https",
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v if isinstance(v, bytes) else v.encode()) for k, v in named.items()],
        }

        async def answered() -> None:
            await self._app(scope, receive, send)

        asyncio.run(answered())
        self.unread = len(messages)
        fields = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in sent[0]["headers"]}
        reply = Reply(sent[0]["status"], fields, b"".join(message.get("body", b"") for message in sent[1:]))
        kind = fields.get("content-type", "")
        faults = faults_of_storage(method, target, reply.status, kind, reply.body)
        assert [fault for fault in faults if not fault.startswith(self._as_given)] == []
        return reply


@pytest.fixture(autouse=True)
def answers_of_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts the methods that Google's client calls in this process, and compares the answers with Google's own."""
    called, faults = Counter[str](), []
    if importlib.util.find_spec("requests") is None:  # nor is there a client
        yield called
        return
    import requests

    send = requests.Session.send

    def compared(session: Any, request: Any, **options: Any) -> Any:
        answer = send(session, request, **options)
        if not options.get("stream"):  # then its body is media, and is not read yet
            kind = answer.headers.get("content-type", "")
            target = request.path_url
            faults.extend(faults_of_storage(request.method, target, answer.status_code, kind, answer.content))
            with contextlib.suppress(LookupError):
                called[description("storage.v1").method_of(request.method, storage_path(target))] += 1
        return answer

    monkeypatch.setattr(requests.Session, "send", compared)
    yield called
    assert faults == []


@pytest.fixture
def caller() -> type[Caller]:
    """The class of callers, for a folder that exists already."""
    return Caller


@pytest.fixture
def call(tmp_path: Path) -> Caller:
    caller = Caller(tmp_path / "root")
    assert caller("POST", "/storage/v1/b?project=p", b'{"name": "bucket"}').status == 200
    return caller
