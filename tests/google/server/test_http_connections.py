"""The behavior of every HTTP port: large bodies in both directions, long names, and reused connections."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from t5x_harness.google.session import EmulatedCloud


def _memory(pid: int) -> int:
    """Returns the largest amount of memory that a process has had, in bytes."""
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.fixture(params=["http", "tls", "tunnel"])
def connection(request: pytest.FixtureRequest, google: EmulatedCloud) -> Iterator[http.client.HTTPConnection]:
    ends = google.endpoints
    if request.param == "http":
        made = http.client.HTTPConnection("127.0.0.1", ends.http, timeout=60)
    else:
        context = ssl.create_default_context(cafile=str(ends.folder / "ca.pem"))
        port = ends.tls if request.param == "tls" else ends.proxy
        made = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        if request.param == "tunnel":
            made.set_tunnel("storage.googleapis.com", 443)
    yield made
    made.close()


def test_large_bodies_stream_both_ways_in_little_memory(
    connection: http.client.HTTPConnection, google: EmulatedCloud
) -> None:
    before, size = _memory(google.endpoints.pid), 96 << 20
    piece = bytes(range(256)) * 4096
    connection.request("PUT", "/large", body=(piece for _ in range(size // len(piece))), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    answer = json.load(connection.getresponse())
    assert answer["size"] == size
    assert answer["sha256"] == hashlib.sha256(piece * (size // len(piece))).hexdigest()
    connection.request("GET", f"/zeros/{size}")
    response, count = connection.getresponse(), 0
    while data := response.read(1 << 20):
        count += len(data)
    assert count == size
    assert _memory(google.endpoints.pid) - before < 48 << 20


def test_a_reader_that_stands_still_holds_nothing_up(google: EmulatedCloud) -> None:
    before = _memory(google.endpoints.pid)
    with socket.create_connection(("127.0.0.1", google.endpoints.http)) as slow:
        slow.sendall(b"GET /zeros/1073741824 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(20):
            other = http.client.HTTPConnection("127.0.0.1", google.endpoints.http, timeout=60)
            other.request("GET", "/quick")
            assert json.load(other.getresponse())["path"] == "/quick"
            other.close()
    assert _memory(google.endpoints.pid) - before < 64 << 20


def test_connections_are_used_again(connection: http.client.HTTPConnection) -> None:
    connection.connect()
    first = connection.sock
    for number in range(20):
        connection.request("POST", f"/{number}", body=b"x" * number)
        assert json.load(connection.getresponse())["size"] == number
    assert connection.sock is first


def test_the_scheme_is_that_of_the_client(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/x")
    secure = isinstance(connection, http.client.HTTPSConnection)
    assert json.load(connection.getresponse())["scheme"] == ("https" if secure else "http")


def test_names_of_any_length_and_kind(connection: http.client.HTTPConnection) -> None:
    for name in ("%C3%A9" * 1024, "a//b/../c%2Fd", "x" * (16 << 10)):
        connection.request("GET", f"/{name}?q={name}")
        answer = json.load(connection.getresponse())
        assert (answer["raw_path"], answer["query"]) == (f"/{name}", f"q={name}")


def test_a_client_may_ask_before_it_sends(google: EmulatedCloud) -> None:
    with socket.create_connection(("127.0.0.1", google.endpoints.http)) as connection:
        connection.settimeout(60)
        connection.sendall(b"PUT /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(b"abc")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_many_clients_at_once(google: EmulatedCloud) -> None:
    def ask(name: str) -> None:
        made = http.client.HTTPConnection("127.0.0.1", google.endpoints.http, timeout=60)
        for number in range(10):
            made.request("PUT", f"/{name}", body=name.encode() * number)
            answer = json.load(made.getresponse())
            assert (answer["path"], answer["size"]) == (f"/{name}", len(name) * number)
        made.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, (f"client-{number}" for number in range(16))))  # raises the error of any call
