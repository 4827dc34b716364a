"""Conditions, ranges, errors, uploads and encodings over plain HTTP."""

import gzip
import json
from typing import Any
from urllib.parse import quote

import pytest

UPLOAD = "/upload/storage/v1/b/bucket/o"
OBJECTS = "/storage/v1/b/bucket/o"


def put(call: Any, name: str, data: bytes, query: str = "") -> Any:
    return call("POST", f"{UPLOAD}?uploadType=media&name={quote(name, safe='')}{query}", data)


def media(call: Any, name: str, headers: dict[str, str] | None = None) -> Any:
    return call("GET", f"{OBJECTS}/{quote(name, safe='')}?alt=media", headers=headers)


def test_a_condition_fails_with_412_on_writes_and_304_on_reads(call: Any) -> None:
    generation = put(call, "a", b"one").json["generation"]
    for method, target in (
        ("POST", f"{UPLOAD}?uploadType=media&name=a&ifGenerationNotMatch={generation}"),
        ("DELETE", f"{OBJECTS}/a?ifGenerationNotMatch={generation}"),
        ("PATCH", f"{OBJECTS}/a?ifMetagenerationNotMatch=1"),
    ):
        refused = call(method, target, b"{}")
        assert (refused.status, refused.json["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")
    unchanged = call("GET", f"{OBJECTS}/a?ifGenerationNotMatch={generation}")
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert put(call, "a", b"two", "&ifGenerationMatch=0").status == 412
    assert media(call, "a").body == b"one"


def test_a_refused_upload_is_read_to_its_end(call: Any) -> None:
    put(call, "a", b"one")
    target = f"{UPLOAD}?uploadType=media&name=a&ifGenerationMatch=0"
    assert call("POST", target, pieces=[b"x" * 1000] * 5).status == 412
    assert call.unread == 0


@pytest.mark.parametrize(
    ("wanted", "status", "body"),
    [
        ("bytes=0-2", 206, b"012"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-4", 206, b"6789"),
        ("bytes=-40", 206, b"0123456789"),
        ("bytes=8-99", 206, b"89"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=5-2", 200, b"0123456789"),
    ],
)
def test_ranges(call: Any, wanted: str, status: int, body: bytes) -> None:
    put(call, "a", b"0123456789")
    answer = media(call, "a", {"range": wanted})
    assert (answer.status, answer.body, answer.headers["content-length"]) == (status, body, str(len(body)))


@pytest.mark.parametrize(("data", "wanted"), [(b"0123", "bytes=4-"), (b"", "bytes=0-"), (b"0123", "bytes=-0")])
def test_ranges_without_a_byte_are_refused(call: Any, data: bytes, wanted: str) -> None:
    put(call, "a", data)
    answer = media(call, "a", {"range": wanted})
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(data)}")


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
@pytest.mark.parametrize("data", [b"", b"data\r\n--b", b"\r\n\r\n", b"\r\n--boundar"])
def test_a_multipart_upload_cut_at_every_byte(call: Any, data: bytes, newline: bytes) -> None:
    resource = b"--boundary", b"Content-Type: application/json", b"", b'{"name": "m"}'
    body = newline.join([*resource, b"--boundary", b"Content-Type: text/x", b"", data, b"--boundary--", b""])
    headers = {"content-type": "multipart/related; boundary=boundary"}
    for cut in range(len(body) + 1):
        done = call("POST", f"{UPLOAD}?uploadType=multipart", headers=headers, pieces=[body[:cut], body[cut:]])
        assert (done.status, done.json["contentType"]) == (200, "text/x")
        assert media(call, "m").body == data


def start(call: Any, resource: dict[str, str]) -> str:
    begun = call("POST", f"{UPLOAD}?uploadType=resumable", json.dumps(resource).encode())
    assert begun.headers["location"].startswith("https://storage.googleapis.com/")
    return str(begun.headers["location"].removeprefix("https://storage.googleapis.com"))


def test_a_resumable_upload_broken_at_every_byte_goes_on(call: Any) -> None:
    data = b"0123456789"
    for cut in range(len(data) + 1):
        at = start(call, {"name": "r"})
        with pytest.raises(ConnectionResetError):
            call("PUT", at, headers={"content-range": "bytes 0-9/10"}, pieces=[data[:cut]], breaks=True)
        asked = call("PUT", at, headers={"content-range": "bytes */10"})
        if cut == len(data):
            assert asked.status == 200
        else:
            assert (asked.status, asked.headers.get("range")) == (308, f"bytes=0-{cut - 1}" if cut else None)
            done = call("PUT", at, data[cut:], {"content-range": f"bytes {cut}-9/10"})
            assert done.json["size"] == "10"
        again = call("PUT", at, headers={"content-range": "bytes */10"})  # the answer was lost
        assert (again.status, media(call, "r").body) == (200, data)


def test_resumable_uploads_of_no_bytes_and_of_unknown_size(call: Any) -> None:
    assert call("PUT", start(call, {"name": "none"}), headers={"content-range": "bytes */0"}).json["size"] == "0"
    at = start(call, {"name": "r"})
    assert call("PUT", at, b"abc", {"content-range": "bytes 0-2/*"}).status == 308
    assert call("PUT", at, b"de", {"content-range": "bytes 3-4/5"}).json["size"] == "5"
    assert media(call, "r").body == b"abcde"


def test_a_cancelled_resumable_upload_is_gone(call: Any) -> None:
    at = start(call, {"name": "r"})
    assert call("DELETE", at).status == 499
    assert call("PUT", at, b"abc").status in (404, 410)


def test_gzip_is_unpacked_for_who_does_not_take_it(call: Any) -> None:
    packed = gzip.compress(b"text" * 1_000_000) + gzip.compress(b"more")
    call("PUT", "/bucket/z", packed, {"content-encoding": "gzip"})
    kept = media(call, "z", {"accept-encoding": "gzip, deflate"})
    assert (kept.body, kept.headers["content-encoding"]) == (packed, "gzip")
    plain = media(call, "z", {"range": "bytes=0-3"})
    assert (plain.status, plain.body) == (200, b"text" * 1_000_000 + b"more")
    assert not {"content-encoding", "content-length"} & set(plain.headers)


def test_head_has_the_headers_and_no_body(call: Any) -> None:
    put(call, "a", b"0123")
    answer = call("HEAD", "/bucket/a")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "4", b"")
    assert call("HEAD", "/bucket/none").body == b""
