"""Exchanges that go wrong: clients that disconnect, applications with errors, bodies that are not read."""

import contextlib
import dataclasses
import http.client
import json
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.google.server.launch import launch
from t5x_harness.google.server.settings import APP, Endpoints, ServerSettings

RST = struct.pack("ii", 1, 0)


@dataclasses.dataclass(frozen=True)
class Served:
    """A server, and the file with its output."""

    endpoints: Endpoints
    output: Path

    def connection(self) -> contextlib.closing[http.client.HTTPConnection]:
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.endpoints.http, timeout=60))

    def socket(self, kind: str = "http") -> socket.socket:
        """Returns a connection: plain, TLS, or TLS through the proxy."""
        ends = self.endpoints
        port = {"http": ends.http, "tls": ends.tls, "tunnel": ends.proxy}[kind]
        made = socket.create_connection(("127.0.0.1", port), timeout=60)
        if kind == "tunnel":
            made.sendall(b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n")
            assert made.recv(4096).startswith(b"HTTP/1.1 200")
        if kind == "http":
            return made
        context = ssl.create_default_context(cafile=str(ends.folder / "ca.pem"))
        return context.wrap_socket(made, server_hostname="storage.googleapis.com")


@contextlib.contextmanager
def serving(app: str, folder: Path) -> Iterator[Served]:
    with (folder / "output").open("w+b") as output:
        launched = launch(ServerSettings(folder / "root", owner=os.getpid(), app=app), output)
        try:
            yield Served(launched.endpoints, folder / "output")
        finally:
            launched.end()


@pytest.fixture
def served(echo: str, tmp_path: Path) -> Iterator[Served]:
    with serving(echo, tmp_path) as running:
        yield running


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Served]:
    with serving(APP, tmp_path) as running:
        with running.connection() as connection:
            connection.request("POST", "/storage/v1/b?project=p", b'{"name": "bucket"}')
            assert connection.getresponse().status == 200
        yield running


@pytest.mark.parametrize("kind", ["http", "tls", "tunnel"])
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_an_upload_broken_off_leaves_nothing_behind_and_nothing_is_said(storage: Served, kind: str, end: str) -> None:
    for head in ("POST /upload/storage/v1/b/bucket/o?uploadType=media&name=x", "PUT /bucket/x"):
        for size in (0, 10, 3 << 20):
            with storage.socket(kind) as connection:
                connection.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n".encode())
                connection.sendall(b"x" * size)
                if end == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
    with storage.connection() as connection:  # which the server takes after those above
        connection.request("GET", "/storage/v1/b/bucket/o")
        assert "items" not in json.load(connection.getresponse())
    incoming = storage.endpoints.root / ".t5x-harness" / "incoming"
    deadline = time.monotonic() + 60
    # Until the server has noticed all disconnects. Asking twice could find an upload that began in between.
    while (left := list(incoming.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    with storage.connection() as connection:
        connection.request("GET", "/storage/v1/b/bucket/o")
        assert "items" not in json.load(connection.getresponse())
    assert storage.output.read_text() == ""


def test_a_download_broken_off_is_no_mistake(storage: Served) -> None:
    with storage.connection() as connection:
        connection.request("PUT", "/bucket/large", bytes(32 << 20))
        assert connection.getresponse().read() == b""
        for _ in range(3):
            with storage.socket() as reader:
                reader.sendall(b"GET /bucket/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert reader.recv(1000)
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
        connection.request("GET", "/bucket/large")
        assert len(connection.getresponse().read()) == 32 << 20
    assert storage.output.read_text() == ""


def test_the_store_is_closed_at_the_end(tmp_path: Path) -> None:
    with serving(APP, tmp_path) as running, running.connection() as connection:
        connection.request("POST", "/storage/v1/b?project=p", b'{"name": "bucket"}')
        assert connection.getresponse().status == 200
    kept = {path.name for path in (tmp_path / "root" / ".t5x-harness").iterdir()}
    # The database has no log; a store that is not closed would leave one.
    assert kept == {"storage.db", "lock", "incoming", "aside", "reserve"}


def test_head_has_the_heads_and_no_body(storage: Served) -> None:
    with storage.connection() as connection:
        connection.request("PUT", "/bucket/x", b"12345")
        connection.getresponse().read()
        for _ in range(2):  # on the same connection: a body would be read as the next answer
            connection.request("HEAD", "/bucket/x")
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Content-Length"), answer.read()) == (200, "5", b"")


@pytest.mark.parametrize(
    ("path", "mistake"),
    [
        ("/raises", "ValueError: a mistake of the application"),
        ("/says-nothing", "RuntimeError: the application did not finish its answer"),
    ],
)
def test_a_mistake_of_the_application_is_said_and_answered(served: Served, path: str, mistake: str) -> None:
    with served.connection() as connection:
        connection.request("GET", f"{path}?x=y")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection"), answer.read()) == (
            500,
            "close",
            b"Internal Server Error",
        )
    said = served.output.read_text()
    assert said.startswith(f"t5x-harness: cannot answer GET {path}\nTraceback (most recent call last):\n")
    assert said.endswith(f"{mistake}\n")


def test_an_answer_that_is_too_short_breaks_the_connection(served: Served) -> None:
    with served.socket() as connection:
        connection.sendall(b"GET /says-too-little HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536) == b""
    assert "the body of the answer is not as long as its Content-Length" in served.output.read_text()


@pytest.mark.parametrize("size", [10, 5 << 20])
def test_a_body_that_nobody_reads_is_passed_over(served: Served, size: int) -> None:
    with served.connection() as connection:
        connection.connect()
        first = connection.sock
        for _ in range(2):
            connection.request("POST", "/does-not-read", b"x" * size)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (403, b"no")
        connection.request("GET", "/next")
        assert json.load(connection.getresponse())["path"] == "/next"
        assert connection.sock is first
    assert served.output.read_text() == ""


def test_a_body_that_nobody_asked_for_is_not_waited_for(served: Served) -> None:
    with served.socket() as connection:
        connection.sendall(
            b"PUT /does-not-read HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        with connection.makefile("rb") as file:
            answer = file.read()  # to the end: a body may still arrive, so the connection cannot be used again
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert answer.endswith(b"\r\nConnection: close\r\n\r\nno")


@pytest.mark.parametrize(
    ("version", "ending"),
    [
        ("1.1", b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        ("1.0", b"Connection: close\r\n\r\nonetwo"),
    ],
)
def test_an_answer_of_unknown_length(served: Served, version: str, ending: bytes) -> None:
    with served.socket() as connection:
        connection.sendall(f"GET /does-not-know-how-long HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(ending) and (data := connection.recv(65536)):
            answer += data
    assert answer.endswith(ending)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", b"400 Bad Request"),
        (b"GET /" + b"x" * 65532, b"400 Bad Request"),  # a head of more than 64 KB
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %b7\r\n\r\n" % (b"0" * 5000), b"200 OK"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %b\r\n\r\n" % (b"9" * 19), b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400 Bad Request"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", b"501 Not Implemented"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n", b"501 Not Implemented"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"501 Not Implemented"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n", b"400 Bad Request"),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", b"400 Bad Request"),
    ],
)
def test_what_is_no_request_is_refused(served: Served, request_: bytes, status: bytes) -> None:
    with served.socket() as connection:
        connection.sendall(request_)
        if status == b"200 OK":  # depending on its version, the parser refuses or accepts such a long number
            connection.sendall(b"seven77")
            assert connection.recv(65536).split(b"\r\n")[0] in (b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request")
            return
        with connection.makefile("rb") as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %b\r\n" % status)
    assert body.startswith(b"t5x-harness: this is not a request of HTTP/1.1: ")
    assert served.output.read_text() == ""


def test_an_upgrade_is_not_taken_up(served: Served) -> None:
    with served.socket() as connection:
        for _ in range(2):
            connection.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 OK")
