"""Faults need the connection under a request: whatever protocol serves it hands it over in the ASGI state."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from t5x_harness.google.asgi import connection_of
from t5x_harness.google.server.http1 import HttpServer


def exchange(end: str) -> tuple[bytes, Exception | None]:
    """What a client gets of a server whose application ends the connection in the middle of an answer."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"01234", "more_body": True})
        await asyncio.sleep(0.05)
        getattr(connection_of(scope), end)()

    def ask(port: int) -> tuple[bytes, Exception | None]:
        got = b""
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try:
                while data := connection.recv(1000):
                    got += data
            except ConnectionResetError as error:
                return got, error
        return got, None

    async def both() -> tuple[bytes, Exception | None]:
        http = HttpServer(app)
        server = await asyncio.get_running_loop().create_server(http.protocol, "127.0.0.1", 0)
        try:
            return await asyncio.to_thread(ask, server.sockets[0].getsockname()[1])
        finally:
            server.close()
            await http.stop()

    return asyncio.run(both())


def test_an_end_sends_what_there_is() -> None:
    got, error = exchange("end")
    assert got.endswith(b"\r\n\r\n01234")
    assert error is None


def test_a_reset_is_one() -> None:
    _, error = exchange("reset")
    assert isinstance(error, ConnectionResetError)
