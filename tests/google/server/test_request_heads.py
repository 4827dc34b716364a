"""TensorFlow's `Transfer-Encoding: identity` is dropped, and bodies end correctly, however a request is split."""

from __future__ import annotations

import itertools
import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.server.http1_parsing import (
    LONGEST_HEAD,
    BadRequest,
    Chunks,
    RequestParser,
    drop_identity,
)
from t5x_harness.google.session import EmulatedCloud

HEAD = b"POST /upload?x=1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n"
BODY = b"\r\n\r\n\n"  # a body may look like the end of a head
# TensorFlow sends both headers, of which the first one counts. A chunk may look like the end of the body.
CHUNKED = (
    b"PUT /chunked HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 15\r\n\r\n"
    b"a\r\nab\n\r\n0\r\n\r\n\r\n"
    b"5;x=y\r\n\n\r\n\r\n\r\n"
    b"0\r\nX-Trailer: z\r\n\r\n"
)


@pytest.mark.parametrize("line", [b"transfer-encoding:identity", b"TRANSFER-ENCODING: \tIdentity  "])
def test_however_it_is_written(line: bytes) -> None:
    assert drop_identity(b"PUT /x HTTP/1.1\r\n" + line + b"\r\n\r\n") == b"PUT /x HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: identity, chunked",
        b"X-Transfer-Encoding: identity",
        b"X-Note: Transfer-Encoding: identity",
        b"Transfer-Encoding: identityx",
    ],
)
def test_no_other_line_is_touched(line: bytes) -> None:
    head = b"PUT /x HTTP/1.1\r\n" + line + b"\r\n\r\n"
    assert drop_identity(head) == head


def taken(*pieces: bytes) -> tuple[list[tuple[bytes, bytes]], bytes, bytes]:
    """Parses a request in pieces; returns its headers, its body, and the bytes after it."""
    parser, body, behind = RequestParser(), b"", b""
    for piece in pieces:
        found, behind = parser.feed(piece)
        body += b"".join(found)
    return parser.headers, body, behind


HEADERS = [(b"host", b"localhost"), (b"content-length", b"5")]


@given(cuts=st.lists(st.integers(0, len(HEAD)), max_size=8), body=st.binary(max_size=40))
def test_a_head_in_many_pieces(cuts: list[int], body: bytes) -> None:
    pieces = [HEAD[start:end] for start, end in itertools.pairwise([0, *sorted(cuts), len(HEAD)]) if start != end]
    assert taken(*pieces[:-1], pieces[-1] + body) == (HEADERS, body[:5], body[5:])


def test_lines_before_a_request_are_passed_over_and_must_end_like_all_others() -> None:
    assert taken(b"\r\n\r\n" + HEAD + BODY) == (HEADERS, BODY, b"")
    with pytest.raises(BadRequest, match="Expected CRLF"):  # the parser does not wait for the rest
        taken(HEAD.replace(b"\r\n", b"\n"))


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
@given(cuts=st.lists(st.integers(1, len(CHUNKED) + 3 * len(HEAD)), max_size=6))
def test_requests_that_do_not_wait_for_answers(google: EmulatedCloud, cuts: list[int]) -> None:
    """Four requests at once, cut anywhere, are all answered in order."""
    requests = [(b"first", b"/1"), (b"", b"/2"), (b"thirdbody", b"/3")]
    data = CHUNKED + b"".join(
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
