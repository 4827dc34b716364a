"""A real server: broken connections, fields that headers cannot hold, and large objects in little memory."""

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask, break_off, make_bucket, related, start_resumable

from t5x_harness.google.session import EmulatedCloud

BODY = b"0123456789"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as running:
        make_bucket(running)
        yield running


def kept_of(session: EmulatedCloud, at: str, size: int) -> int:
    """Returns how many bytes of an upload the server has; ``size`` if the upload is finished."""
    status, headers, _ = ask(session, "PUT", at, headers={"Content-Range": f"bytes */{size}"})
    if status == 200:
        return size
    assert status == 308
    return int(headers["range"].removeprefix("bytes=0-")) + 1 if "range" in headers else 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_large_resumable_upload_broken_again_and_again(session: EmulatedCloud, reset: bool) -> None:
    body = bytes(range(251)) * 20_000
    at = start_resumable(session, "large")
    sent = 0
    for step in (1, 65_536, 300_001, 1_048_576, 2_000_000):
        kept = kept_of(session, at, len(body))
        assert kept <= sent
        head = f"PUT {at} HTTP/1.1\r\nContent-Length: {len(body) - kept}\r\n"
        head += f"Content-Range: bytes {kept}-{len(body) - 1}/{len(body)}"
        break_off(session, head, body[kept : kept + step], reset=reset)
        sent = kept + step
    kept = kept_of(session, at, len(body))
    status, _, _ = ask(session, "PUT", at, body[kept:], {"Content-Range": f"bytes {kept}-{len(body) - 1}/{len(body)}"})
    assert status == 200
    assert ask(session, "GET", "/bucket/large")[2] == body


def test_a_stream_of_unknown_size_ends_with_its_request(session: EmulatedCloud) -> None:
    """Node's client sends a stream in one request, or in several whose last one says the size."""
    at = start_resumable(session, "stream")
    status, _, answer = ask(session, "PUT", at, BODY, {"Content-Range": "bytes 0-*/*"})
    assert (status, json.loads(answer)["size"]) == (200, "10")
    at = start_resumable(session, "stream")
    assert ask(session, "PUT", at, BODY, {"Content-Range": "bytes 0-*/20"})[0] == 308
    assert ask(session, "PUT", at, BODY, {"Content-Range": "bytes 10-*/20"})[0] == 200
    assert ask(session, "GET", "/bucket/stream")[2] == BODY * 2


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "head",
    [
        "POST /upload/storage/v1/b/bucket/o?uploadType=media&name=whole HTTP/1.1\r\nContent-Length: 10",
        "PUT /bucket/whole HTTP/1.1\r\nContent-Length: 10",
        "PUT /bucket/whole HTTP/1.1\r\nTransfer-Encoding: chunked",
    ],
)
def test_other_uploads_are_whole_or_not_there(session: EmulatedCloud, head: str, reset: bool) -> None:
    ask(session, "PUT", "/bucket/whole", b"before")
    for cut in range(len(BODY)):
        sent = b"a\r\n" + BODY[:cut] if "chunked" in head else BODY[:cut]
        break_off(session, head, sent, reset=reset)
    assert ask(session, "GET", "/bucket/whole")[2] == b"before"


FIELDS: dict[str, Any] = {
    "contentType": "text/\u2603",
    "cacheControl": "private\r\nx-injected: 1",
    "contentDisposition": 'attachment; filename="\u00fc"',
    "metadata": {"\u00fc": "\u2603", "with space": "two\nlines", "a:b": " padded ", "empty": ""},
}


def test_odd_fields(session: EmulatedCloud) -> None:
    body, content = related(json.dumps({"name": "odd", **FIELDS}).encode(), b"body")
    ask(session, "POST", "/upload/storage/v1/b/bucket/o?uploadType=multipart", body, content)
    shown = json.loads(ask(session, "GET", "/storage/v1/b/bucket/o/odd")[2])
    assert FIELDS.items() <= shown.items()
    status, headers, body = ask(session, "GET", "/bucket/odd")
    assert (status, body) == (200, b"body")
    assert "x-injected" not in headers
    told = {name: headers[name].encode("latin-1").decode() for name in headers}
    assert told["content-type"] == "text/\u2603"
    assert told["cache-control"] == "private%0D%0Ax-injected: 1"
    assert told["content-disposition"] == 'attachment; filename="\u00fc"'
    assert {name: value for name, value in told.items() if name.startswith("x-goog-meta-")} == {
        "x-goog-meta-%c3%bc": "\u2603",
        "x-goog-meta-with%20space": "two%0Alines",
        "x-goog-meta-a%3ab": "padded",
        "x-goog-meta-empty": "",
    }


PIECE = bytes(range(256)) * (1 << 12)
COUNT = 200
MOST = 32 << 20


def peak(session: EmulatedCloud) -> int:
    """Returns the peak resident memory of the server, in bytes."""
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
def test_large_objects(kind: str, tmp_path: Path) -> None:
    with EmulatedCloud(tmp_path) as session:
        make_bucket(session)
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
        assert ask(session, "POST", "/storage/v1/b/bucket/o/large/copyTo/b/bucket/o/copied")[0] == 200
        (tmp_path / "buckets" / "bucket" / "copied").touch()  # so that it is read anew, like a file from outside
        connection.request("GET", "/storage/v1/b/bucket/o/copied?alt=media")
        answer = connection.getresponse()
        for _ in range(COUNT):
            assert answer.read(len(PIECE)) == PIECE
        assert answer.read() == b""
        connection.close()
        assert peak(session) - before < MOST
