"""Connections that break in the middle: nothing is seen by halves, and a resumable upload goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask, break_off, make_bucket, start_resumable

from t5x_harness.google.session import EmulatedCloud

BODY = b"0123456789"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as running:
        make_bucket(running)
        yield running


def kept_of(session: EmulatedCloud, at: str, size: int) -> int:
    """How many bytes of an upload the server has; all of them if it is over."""
    status, headers, _ = ask(session, "PUT", at, headers={"Content-Range": f"bytes */{size}"})
    if status == 200:
        return size
    assert status == 308
    return int(headers["range"].removeprefix("bytes=0-")) + 1 if "range" in headers else 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_resumable_upload_broken_at_every_byte(session: EmulatedCloud, reset: bool) -> None:
    for cut in range(len(BODY) + 1):
        at = start_resumable(session, f"cut/{cut}")
        head = f"PUT {at} HTTP/1.1\r\nContent-Length: {len(BODY)}\r\nContent-Range: bytes 0-9/10"
        break_off(session, head, BODY[:cut], reset=reset)
        # The server may not have seen all that was sent; what it says it has is what it has.
        while (kept := kept_of(session, at, len(BODY))) < len(BODY):
            assert kept <= cut
            rest = {"Content-Range": f"bytes {kept}-9/10"}
            status, _, told = ask(session, "PUT", at, BODY[kept:], rest)
            assert (status, json.loads(told)["size"]) == (200, "10")
        assert ask(session, "GET", f"/bucket/cut/{cut}")[2] == BODY


def test_a_large_resumable_upload_broken_again_and_again(session: EmulatedCloud) -> None:
    body = bytes(range(251)) * 20_000
    at = start_resumable(session, "large")
    sent = 0
    for step in (1, 65_536, 300_001, 1_048_576, 2_000_000):
        kept = kept_of(session, at, len(body))
        assert kept <= sent
        head = f"PUT {at} HTTP/1.1\r\nContent-Length: {len(body) - kept}\r\n"
        head += f"Content-Range: bytes {kept}-{len(body) - 1}/{len(body)}"
        break_off(session, head, body[kept : kept + step], reset=False)
        sent = kept + step
    kept = kept_of(session, at, len(body))
    status, _, _ = ask(session, "PUT", at, body[kept:], {"Content-Range": f"bytes {kept}-{len(body) - 1}/{len(body)}"})
    assert status == 200
    assert ask(session, "GET", "/bucket/large")[2] == body


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
