"""Objects stream through the server in little memory, however they come and go."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import make_bucket, start_resumable

from t5x_harness.google.session import EmulatedCloud

PIECE = bytes(range(256)) * (1 << 12)
COUNT = 200
MOST = 32 << 20


@pytest.fixture
def session() -> Iterator[EmulatedCloud]:
    with EmulatedCloud() as running:
        make_bucket(running)
        yield running


def peak(session: EmulatedCloud) -> int:
    """The most memory that the server has had resident, in bytes."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{session.endpoints.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def body(kind: str) -> Iterator[bytes]:
    if kind == "multipart":
        yield b'--x\r\nContent-Type: application/json\r\n\r\n{"name": "large"}\r\n'
        yield b"--x\r\nContent-Type: text/plain\r\n\r\n"
    for _ in range(COUNT):
        yield PIECE
    if kind == "multipart":
        yield b"\r\n--x--\r\n"


@pytest.mark.parametrize("kind", ["media", "multipart", "resumable", "xml"])
def test_large_objects(session: EmulatedCloud, kind: str) -> None:
    method, path = {
        "media": ("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=large"),
        "multipart": ("POST", "/upload/storage/v1/b/bucket/o?uploadType=multipart"),
        "resumable": ("PUT", start_resumable(session, "large")),
        "xml": ("PUT", "/bucket/large"),
    }[kind]
    before = peak(session)
    connection = http.client.HTTPConnection("127.0.0.1", session.endpoints.http, timeout=60)
    headers = {"Content-Type": "multipart/related; boundary=x"} if kind == "multipart" else {}
    connection.request(method, path, body(kind), headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.request("GET", "/storage/v1/b/bucket/o/large?alt=media")
    answer = connection.getresponse()
    for _ in range(COUNT):
        assert answer.read(len(PIECE)) == PIECE
    assert answer.read() == b""
    connection.close()
    assert peak(session) - before < MOST
