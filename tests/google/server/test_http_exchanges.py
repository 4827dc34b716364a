"""Exchanges on one connection: answers before a body is over, requests that do not wait, a connection that ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from t5x_harness.google.asgi import connection_of
from t5x_harness.google.server.http1 import HttpServer
from t5x_harness.google.server.http1_parsing import RequestParser

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[tuple[HttpServer, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A server, and a client's connection to it."""
    http = HttpServer(app)
    server = await asyncio.get_running_loop().create_server(http.protocol, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield http, reader, writer
    finally:
        writer.close()
        server.close()
        await http.stop()


def test_an_answer_before_the_body_is_over() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    async def main() -> None:
        async with serving(app) as (_, reader, writer):

            async def ask(*pieces: bytes) -> bytes:
                for piece in pieces:
                    writer.write(piece)
                    for _ in range(5):  # iterations, for the server to read it
                        await asyncio.sleep(0.001)
                await reader.readuntil(b"\r\n\r\n")
                return await reader.readexactly(len(b"answered"))

            assert await ask(HEAD, b"bo", b"dy") == b"answered"
            assert await ask(HEAD + b"body" + HEAD + b"body") == b"answered"
            assert await ask() == b"answered"  # requests that do not wait for answers

    asyncio.run(main())


@pytest.mark.parametrize("request_", [GET, HEAD + b"body", CHUNKED])
def test_what_was_read_of_a_request_does_not_wait_for_the_garbage_collector(request_: bytes) -> None:
    parser = RequestParser()
    rest = request_
    while rest:
        _, rest = parser.feed(rest)
    assert parser.over
    gone = weakref.ref(parser)
    gc.disable()
    try:
        del parser
        assert gone() is None
    finally:
        gc.enable()


def test_a_server_that_ends_closes_a_connection_on_which_only_a_head_came() -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        heard.append(scope["type"])

    async def main() -> bytes:
        async with serving(app) as (http, reader, writer):
            writer.write(HEAD)
            while not http.connections:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            await http.stop()
            return await reader.read()

    assert asyncio.run(main()) == b""
    assert heard == []


@pytest.mark.parametrize(("end", "kind"), [("end", bytes), ("reset", ConnectionResetError)])
def test_an_application_ends_the_connection_in_the_middle_of_an_answer(end: str, kind: type) -> None:
    """Faults do so through the connection in the ASGI state; an end, unlike a reset, first sends the pending bytes."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"01234", "more_body": True})
        await asyncio.sleep(0.05)
        getattr(connection_of(scope), end)()

    async def main() -> bytes | ConnectionResetError:
        async with serving(app) as (_, reader, writer):
            writer.write(GET)
            try:
                return await reader.read()
            except ConnectionResetError as error:
                return error

    got = asyncio.run(main())
    assert isinstance(got, kind)
    assert not isinstance(got, bytes) or got.endswith(b"\r\n\r\n01234")
