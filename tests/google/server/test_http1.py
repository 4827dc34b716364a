"""HTTP/1.1: requests end correctly however they are split, exchanges follow each other, and large bodies stream."""

import asyncio
import contextlib
import gc
import hashlib
import http.client
import itertools
import json
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.asgi import connection_of
from t5x_harness.google.server.http1 import HttpServer
from t5x_harness.google.server.http1_parsing import (
    LONGEST_HEAD,
    BadRequest,
    Chunks,
    RequestParser,
)
from t5x_harness.google.session import EmulatedCloud

UPLOAD = b"POST /upload?x=1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n"
BODY = b"\r\n\r\n\n"  # a body may look like the end of a head
# TensorFlow sends both headers, of which the first one counts. A chunk may look like the end of the body.
BOTH_LENGTHS = (
    b"PUT /chunked HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 15\r\n\r\n"
    b"a\r\nab\n\r\n0\r\n\r\n\r\n"
    b"5;x=y\r\n\n\r\n\r\n\r\n"
    b"0\r\nX-Trailer: z\r\n\r\n"
)


def taken(*pieces: bytes) -> tuple[list[tuple[bytes, bytes]], bytes, bytes]:
    """Parses a request in pieces; returns its headers, its body, and the bytes after it."""
    parser, body, behind = RequestParser(), b"", b""
    for piece in pieces:
        found, behind = parser.feed(piece)
        body += b"".join(found)
    return parser.headers, body, behind


@pytest.mark.parametrize("line", [b"transfer-encoding:identity", b"TRANSFER-ENCODING: \tIdentity  "])
def test_identity_is_dropped_however_it_is_written(line: bytes) -> None:
    assert taken(b"PUT /x HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\n")[0] == [(b"host", b"h")]


@pytest.mark.parametrize(
    ("name", "value"), [(b"x-transfer-encoding", b"identity"), (b"x-note", b"Transfer-Encoding: identity")]
)
def test_no_other_line_is_touched(name: bytes, value: bytes) -> None:
    head = b"PUT /x HTTP/1.1\r\nHost: h\r\n%b: %b\r\n\r\n"
    assert taken(head % (name, value))[0] == [(b"host", b"h"), (name, value)]
    for coding in (b"identityx", b"identity, chunked"):
        with pytest.raises(BadRequest, match="only chunked alone is served"):
            taken(head % (b"Transfer-Encoding", coding))


HEADERS = [(b"host", b"localhost"), (b"content-length", b"5")]


@given(cuts=st.lists(st.integers(0, len(UPLOAD)), max_size=8), body=st.binary(max_size=40))
def test_a_head_in_many_pieces(cuts: list[int], body: bytes) -> None:
    pieces = [UPLOAD[start:end] for start, end in itertools.pairwise([0, *sorted(cuts), len(UPLOAD)]) if start != end]
    assert taken(*pieces[:-1], pieces[-1] + body) == (HEADERS, body[:5], body[5:])


def test_lines_before_a_request_are_passed_over_and_must_end_like_all_others() -> None:
    assert taken(b"\r\n\r\n" + UPLOAD + BODY) == (HEADERS, BODY, b"")
    with pytest.raises(BadRequest, match="Expected CRLF"):  # the parser does not wait for the rest
        taken(UPLOAD.replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_long_is_refused(end: bytes) -> None:
    with pytest.raises(BadRequest, match="a head of more than 65536 bytes"):
        RequestParser().feed(b"GET /" + b"x" * LONGEST_HEAD + end)


def _receive_answers(connection: socket.socket, count: int) -> list[dict[str, object]]:
    with connection.makefile("rb") as file:
        answers = []
        for _ in range(count):
            status = file.readline()
            assert status == b"HTTP/1.1 200 \r\n" or status.startswith(b"HTTP/1.1 200 OK"), status
            length = 0
            while (line := file.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            answers.append(json.loads(file.read(length)))
        return answers


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, len(BOTH_LENGTHS) + 3 * len(UPLOAD)), max_size=6))
def test_requests_that_do_not_wait_for_answers(google: EmulatedCloud, cuts: list[int]) -> None:
    """Four requests at once, cut anywhere, are all answered in order."""
    requests = [(b"first", b"/1"), (b"", b"/2"), (b"thirdbody", b"/3")]
    data = BOTH_LENGTHS + b"".join(
        b"PUT %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nContent-Length: %d\r\n\r\n%s"
        % (path, len(body), body)
        for body, path in requests
    )
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    with socket.create_connection(("127.0.0.1", google.endpoints.http)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, end in itertools.pairwise(places):
            connection.sendall(data[start:end])
        answers = _receive_answers(connection, 4)
    assert [(a["path"], a["size"]) for a in answers] == [("/chunked", 15), ("/1", 5), ("/2", 0), ("/3", 9)]


PIECES = st.lists(
    st.binary(min_size=1, max_size=20) | st.sampled_from([b"\n\n", b"0\r\n\r\n", b"\r\n\r\n"]), max_size=5
)


@given(pieces=PIECES, behind=st.binary(max_size=9), cuts=st.lists(st.integers(0, 200), max_size=6), end=st.booleans())
def test_a_body_in_many_pieces(pieces: list[bytes], behind: bytes, cuts: list[int], end: bool) -> None:
    ends = b"\r\n" if end else b"\n"
    body = b"".join(b"%X; a=b%b%b%b" % (len(piece), ends, piece, ends) for piece in pieces)
    data = b"%b0%bTrailer: x%b%b" % (body, ends, ends, ends)
    chunks, got, rest = Chunks(), b"", b""
    for start, stop in itertools.pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        assert not chunks.over
        found, rest = chunks.feed(data[start:stop] + (behind if stop == len(data) else b""))
        got += b"".join(found)
        if stop == len(data):
            break
    assert (chunks.over, got, rest) == (True, b"".join(pieces), behind)


def test_a_chunk_is_one_piece_whatever_is_in_it() -> None:
    body = b"\n" * (2 << 20)
    assert Chunks().feed(b"200000\r\n%b\r\n0\r\n\r\n" % body) == ([body], b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x\r\n", "a chunk does not begin with its size"),
        (b"-1\r\n", "a chunk does not begin with its size"),
        (b"\r\n", "a chunk does not begin with its size"),
        (b"1" * 16 + b"\r\n", "a chunk does not begin with its size"),
        (b"1\r\nab\r\n", "a chunk is longer than it says"),
        (b"1;" + b"x" * 9000, "a line of more than 8192 bytes between its chunks"),
        (b"0\r\n" + b"X: y\r\n" * 20000, "trailers of more than 65536 bytes"),
    ],
)
def test_what_is_none(data: bytes, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Chunks().feed(data)


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
