"""The end of a chunked body is found, whatever is in the body and however it is cut up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.google.server.http1_parsing import Chunks, NotChunked

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
    with pytest.raises(NotChunked, match=message):
        Chunks().feed(data)
