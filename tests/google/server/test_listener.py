"""Ports accept only connections of their own user, and keep working when descriptors run out."""

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.server import listener as listener_module
from t5x_harness.google.server import process as server
from t5x_harness.google.server.http1 import HttpServer
from t5x_harness.google.server.listener import BUSY, Connections, Peers, PortListener, ThrottledLog
from t5x_harness.google.server.settings import Endpoints, ServerSettings

ME = os.geteuid()
SOMEBODY_ELSE = ME + 12345
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's connection, and the server's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with client, accepted:
            yield client, accepted


def no_netlink(*_arguments: object) -> socket.socket:
    raise PermissionError("no netlink here")


@pytest.fixture(params=["sock_diag", "tables"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way in which the owner of a connection is read."""
    if request.param == "tables":
        monkeypatch.setattr(Peers, "_ask_kernel", no_netlink)


@pytest.mark.usefixtures("read")
def test_connections_of_the_same_user_are_served_and_those_of_others_are_not(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ends = pair[1].getpeername(), pair[1].getsockname()
    with contextlib.closing(Peers()) as peers:
        assert peers.known
        assert peers.refusal(*ends) is None
    with contextlib.closing(Peers([SOMEBODY_ELSE])) as peers:
        assert peers.refusal(*ends) == f"it belongs to the user with uid {ME}"


@pytest.mark.usefixtures("read")
def test_what_a_client_has_closed_is_nobodys_and_not_roots(pair: tuple[socket.socket, socket.socket]) -> None:
    ends = pair[1].getpeername(), pair[1].getsockname()
    pair[0].close()
    with contextlib.closing(Peers()) as peers:
        assert peers.refusal(*ends) == ""
    with contextlib.closing(Peers()) as peers:
        assert peers.refusal(("127.0.0.1", 1), ends[1]) == ""


@pytest.mark.usefixtures("read")
def test_an_ipv6_socket_is_its_owners_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", listening.getsockname()[1]))
        accepted, peer = listening.accept()
        with accepted, contextlib.closing(Peers([SOMEBODY_ELSE])) as peers:
            assert peers.refusal(peer, accepted.getsockname()) == f"it belongs to the user with uid {ME}"


def test_a_system_that_does_not_tell_is_known_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Peers, "_ask_kernel", no_netlink)
    monkeypatch.setattr(listener_module, "_TABLES", (tmp_path / "tcp",))
    peers = Peers([SOMEBODY_ELSE])
    assert not peers.known
    assert peers.refusal(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_every_port_refuses_other_users_and_says_so_once_a_second(
    echo: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(server, "Peers", lambda: Peers([SOMEBODY_ELSE]))
    answers: dict[str, bytes] = {}

    def ask(ends: Endpoints) -> None:
        try:
            for name in ("http", "tls", "proxy", "grpc"):
                with socket.create_connection(("127.0.0.1", getattr(ends, name)), timeout=60) as connection:
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n")
                        answers[name] = connection.recv(100)
                    answers.setdefault(name, b"")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(server.serve(ServerSettings(app=echo), lambda ends: threading.Thread(target=ask, args=[ends]).start()))
    assert answers == dict.fromkeys(("http", "tls", "proxy", "grpc"), b"")
    lines = capfd.readouterr().err.splitlines()
    assert 1 <= len(lines) < 5
    assert lines[0].startswith("t5x-harness: a connection to port ")
    assert lines[0].endswith(
        f" is refused: it belongs to the user with uid {ME}; only the user who started the emulated Google Cloud, and "
        "root, may use it"
    )


async def _hello(scope: Any, _receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextlib.asynccontextmanager
async def listening(connections: Connections) -> AsyncIterator[Callable[[], Any]]:
    """Opens connections to a server."""
    http = HttpServer(_hello, connections)
    listener = PortListener(http.protocol, 0, None, peers=Peers(), connections=connections, log=ThrottledLog())
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writers.append(writer)
        return reader, writer

    try:
        async with connections.watched():
            yield connect
    finally:
        for writer in writers:
            writer.close()
        listener.close()
        await http.stop()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(5)


def test_the_connection_that_has_waited_longest_makes_room_for_a_new_one() -> None:
    async def main() -> list[bytes]:
        async with listening(Connections(most=3)) as connect:
            first, second, third = [await connect() for _ in range(3)]
            for each in (second, third, first):
                assert await _ask(*each) == b"hello"
            assert await _ask(*await connect()) == b"hello"
            assert await second[0].read() == b""
            return [await _ask(*first), await _ask(*third)]

    assert asyncio.run(main()) == [b"hello", b"hello"]


def test_a_head_that_does_not_end_is_given_up_and_a_connection_that_waits_is_not() -> None:
    async def main() -> tuple[bytes, bytes]:
        async with listening(Connections(head_seconds=0.2)) as connect:
            waiting, half = await connect(), await connect()
            half[1].write(GET[:10])
            text = await half[0].read()
            return text, await _ask(*waiting)

    text, answer = asyncio.run(main())
    assert text.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert text.endswith(b"t5x-harness: this is not a request of HTTP/1.1: its head did not end\n")
    assert answer == b"hello"


def test_a_server_without_descriptors_closes_what_waits_or_else_says_so_and_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t5x_harness.google.server.listener._PAUSE_SECONDS", 0.05)
    refusals: list[int] = []
    accept = socket.socket.accept

    def full(self: socket.socket) -> tuple[socket.socket, Any]:
        if refusals:
            raise OSError(refusals.pop(), "Too many open files")
        return accept(self)

    async def main() -> None:
        connections = Connections()
        async with listening(connections) as connect:
            waiting = await connect()
            assert await _ask(*waiting) == b"hello"
            refusals.append(errno.EMFILE)
            busy = await connect()
            busy[1].write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
            assert await waiting[0].read() == b""  # it was closed to make room
            while not any(each.waits_since == BUSY for each in connections):
                await asyncio.sleep(0.001)
            refusals.append(errno.EMFILE)
            assert await _ask(*await connect()) == b"hello"  # after a pause
            busy[1].write(b"12345")
            await busy[0].readuntil(b"hello")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", full)
        asyncio.run(main())
    assert capsys.readouterr().err == (
        "t5x-harness: cannot accept a connection: Too many open files, and none of the 1 open ones is idle; "
        "see ulimit -n\n"
    )


def test_lines_of_one_second_are_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("t5x_harness.google.server.listener.time.monotonic", lambda: now)
    log = ThrottledLog()
    for _ in range(1000):
        log.write("something")
    now += 2
    log.write("something")
    assert capsys.readouterr().err.splitlines() == [
        "t5x-harness: something",
        "t5x-harness: something (and 999 more such lines since the last one)",
    ]


def test_the_soft_limit_of_descriptors_is_raised_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert server._raise_limit() == 1 << 16
    assert limits == [(1 << 16, 1 << 20)]
