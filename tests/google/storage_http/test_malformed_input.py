"""Malformed input is refused with 400 before anything is stored; no stored value breaks later answers."""

import base64
import errno
import json
import sqlite3
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from serving_storage import related

from t5x_harness.google.storage import disk
from t5x_harness.google.storage.store import ObjectStore

BUCKET, OBJECTS, UPLOAD = "/storage/v1/b/bucket", "/storage/v1/b/bucket/o", "/upload/storage/v1/b/bucket/o"
HALF = "\\ud800"  # half of a surrogate pair, as JSON encodes it

NO_UNICODE = "Parse Error: The text is not UTF-8: surrogates not allowed."


def listed(call: Any) -> list[str]:
    return [item["name"] for item in call("GET", OBJECTS).json.get("items", [])]


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (f'{{"name":"bad","metadata":{{"a":"{HALF}"}}}}', NO_UNICODE),
        (f'{{"name":"bad","metadata":{{"{HALF}":"a"}}}}', NO_UNICODE),
        (f'{{"name":"{HALF}"}}', NO_UNICODE),
        ('{"name":"bad","contentType":7}', "contentType has to be text, not 7"),
        ('{"name":"bad","contentType":[]}', "contentType has to be text, not []"),
        ('{"name":"bad","cacheControl":{}}', "cacheControl has to be text, not {}"),
        ('{"name":"bad","customTime":true}', "customTime has to be text, not true"),
        (
            '{"name":"bad","customTime":"2026-02-30T12:00:00Z"}',
            'customTime has to be a time such as 2026-11-28T12:00:00Z, not "2026-02-30T12:00:00Z"',
        ),
        ('{"name":"bad","md5Hash":["x"]}', 'md5Hash has to be text, not ["x"]'),
        ('{"name":"bad","metadata":{"a":1}}', "metadata has to be an object of texts"),
        ('{"name":"bad","x":NaN}', "Parse Error: Failed to load JSON: Unexpected token: NaN is not a number."),
        ('{"name":"bad","x":1e999}', "Parse Error: Failed to load JSON: Number 1e999 is out of range."),
        (deep(101).decode(), "Parse Error: It is nested too deeply."),
        (deep(3000).decode(), "Parse Error: It is nested too deeply."),
    ],
)
def test_an_objects_resource(call: Any, resource: str, message: str) -> None:
    body, headers = related(resource.encode())
    for reply in (
        call("POST", f"{UPLOAD}?uploadType=multipart", body, headers),
        call("POST", f"{UPLOAD}?uploadType=resumable", resource.encode()),
    ):
        assert (reply.status, reply.json["error"]["message"]) == (400, message)
    assert call("POST", f"{UPLOAD}?uploadType=media&name=good", b"x").status == 200
    if '"name":"bad"' in resource:
        assert call("PATCH", f"{OBJECTS}/good", resource.encode()).status == 400 or "md5Hash" in resource
    assert listed(call) == ["good"]
    assert call("GET", f"{OBJECTS}/good?alt=media").body == b"x"


def test_raw_bytes_that_are_not_utf8(call: Any) -> None:
    for resource in (b'{"name":"bad","metadata":{"a":"\xed\xa0\x80"}}', b'{"name":"bad\xff"}'):
        body, headers = related(resource)
        assert call("POST", f"{UPLOAD}?uploadType=multipart", body, headers).status == 400
    body, headers = related(b'{"name":"bad"}', kind=b"text/\xff")
    reply = call("POST", f"{UPLOAD}?uploadType=multipart", body, headers)
    assert (reply.status, reply.json["error"]["message"]) == (400, "The content type of the media has to be ASCII")
    headers = {"content-type": "multipart/related; boundary*=utf-8''%E2%98%83"}
    assert call("POST", f"{UPLOAD}?uploadType=multipart", body, headers).status == 400
    for path in ("/bucket/%ff", f"{OBJECTS}/%ff", f"{UPLOAD}?uploadType=media&name=%ff", f"{OBJECTS}?prefix=%ff"):
        assert call("PUT" if path == "/bucket/%ff" else "POST", path, b"x").status == 400
    assert call("PUT", "/bucket/copy", headers={"x-goog-copy-source": "bucket/%ff"}).status == 400
    assert listed(call) == []


def test_a_buckets_resource(call: Any) -> None:
    for fields in (f'{{"labels":{{"x":"{HALF}"}}}}', '{"labels":"x"}', '{"labels":{"a":1}}', '{"location":1}'):
        for method in ("PATCH", "PUT"):
            assert call(method, BUCKET, fields.encode()).status == 400
        made = json.loads(fields.replace("\\ud800", "x")) | {"name": "other"}
        if HALF not in fields:
            assert call("POST", "/storage/v1/b?project=p", json.dumps(made).encode()).status == 400
    found = call("GET", "/storage/v1/b?project=p").json["items"]
    assert [(item["name"], item["metageneration"]) for item in found] == [("bucket", "1")]


@pytest.mark.parametrize(
    "sources",
    [b"[null]", b"true", b'"x"', b'[{"name":"src","objectPreconditions":true}]', b'[{"name":7}]', b"[[]]",
     b'[{"name":"src","generation":[]}]'],
)  # fmt: skip
def test_sources_of_a_composition(call: Any, sources: bytes) -> None:
    call("PUT", "/bucket/src", b"x")
    assert call("POST", f"{OBJECTS}/to/compose", b'{"sourceObjects":' + sources + b"}").status == 400
    assert call("POST", f"{OBJECTS}/to/compose", b'{"sourceObjects":[{"name":"src"}],"destination":7}').status == 400
    assert listed(call) == ["src"]


def test_numbers_of_five_thousand_digits(call: Any) -> None:
    call("PUT", "/bucket/a", b"0123456789")
    long = "9" * 5000
    for wanted, status, body in (
        (f"bytes=2-{long}", 206, b"23456789"),
        (f"bytes=-{long}", 206, b"0123456789"),
        (f"bytes={'0' * 5000}2-3", 206, b"23"),
    ):
        reply = call("GET", "/bucket/a", headers={"range": wanted})
        assert (reply.status, reply.body) == (status, body)
    assert call("GET", "/bucket/a", headers={"range": f"bytes={long}-"}).status == 416
    at = call("POST", f"{UPLOAD}?uploadType=resumable&name=b").headers["location"].partition("googleapis.com")[2]
    assert call("PUT", at, b"x", {"content-range": f"bytes {long}-{long}/{long}"}).status == 400
    for path in (f"/bucket/a?generation={long}", f"{OBJECTS}/a?ifGenerationMatch={long}", f"/bucket?max-keys={long}"):
        assert call("GET", path).status == 400


def test_conditions_and_tokens_that_make_no_sense(call: Any) -> None:
    call("PUT", "/bucket/a", b"x")
    for since in ("Mon, 01 Jan 0001 00:00:00 -0000", "Fri, 31 Dec 9999 23:59:59 -2359", "x"):
        assert call("GET", "/bucket/a", headers={"if-modified-since": since}).status in (200, 304)
    token = quote(base64.b64encode(deep(3000)).decode(), safe="")
    assert call("POST", f"{OBJECTS}/a/rewriteTo/b/bucket/o/b?rewriteToken={token}").status == 400
    upload = call("POST", "/bucket/a?uploads").body.decode().partition("<UploadId>")[2].partition("<")[0]
    assert call("GET", f"/bucket/a?uploadId={upload}&max-parts=-1").status == 400
    assert call("GET", f"/bucket/a?uploadId={upload}&max-parts=0").status == 200
    last = quote("\U0010ffff", safe="")
    assert call("GET", f"/bucket?delimiter={last}&marker={last}").status == 200


def test_batches(call: Any) -> None:
    def batch(*calls: bytes, content_id: bytes = b"<1>") -> Any:
        body = b"".join(
            b"--b\r\nContent-Type: application/http\r\nContent-ID: " + content_id + b"\r\n\r\n" + each + b"\r\n"
            for each in calls
        )
        return call("POST", "/batch/storage/v1", body + b"--b--", {"content-type": "multipart/mixed; boundary=b"})

    assert batch(b"GET http://[/storage/v1/b HTTP/1.1\r\n\r\n").status == 400
    assert batch(b"POST /batch/storage/v1 HTTP/1.1\r\n\r\n").status == 400
    assert batch(b"GET /storage/v1/b/bucket HTTP/1.1\r\n\r\n", content_id=b"<\xff>").status == 200


def test_objects_that_are_no_gzip(call: Any) -> None:
    for name, body in (("a", b"no gzip"), ("empty", b"")):
        call("PUT", f"/bucket/{name}", body, {"content-encoding": "gzip"})
        for path in (f"/bucket/{name}", f"{OBJECTS}/{name}?alt=media"):
            assert call("GET", path, headers={"accept-encoding": "gzip"}).body == body
            reply = call("GET", path)
            assert (reply.status, body == b"") == (200 if not body else 400, body == b"")
            if body:
                assert b"bucket/a has contentEncoding gzip, but is not gzip: " in reply.body


def test_headers_of_the_xml_api_are_utf8(call: Any) -> None:
    call("PUT", "/bucket/a", b"x", {"content-disposition": 'attachment; filename="ü.txt"', "x-goog-meta-k": "☃"})
    found = call("GET", f"{OBJECTS}/a").json
    assert (found["contentDisposition"], found["metadata"]) == ('attachment; filename="ü.txt"', {"k": "☃"})
    sent = call("GET", "/bucket/a").headers["content-disposition"]
    assert sent.encode("latin-1").decode() == 'attachment; filename="ü.txt"'


def test_a_null_in_the_metadata_of_a_new_object(call: Any) -> None:
    body, headers = related(b'{"name":"a","metadata":{"a":null,"b":"c"}}')
    assert call("POST", f"{UPLOAD}?uploadType=multipart", body, headers).json["metadata"] == {"b": "c"}


def test_a_field_of_the_stores_own(call: Any) -> None:
    policy = call("GET", f"{BUCKET}/iam").json
    assert call("PATCH", BUCKET, b'{"emulatedPolicy": "text"}').status == 200
    assert call("GET", f"{BUCKET}/iam").json["bindings"] == policy["bindings"]


def test_a_policy_that_another_changes_meanwhile(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = call("GET", f"{BUCKET}/iam").json
    patch = ObjectStore.patch_bucket

    def patch_after_another(store: ObjectStore, name: str, *arguments: Any) -> Any:
        monkeypatch.setattr(ObjectStore, "patch_bucket", patch)
        store.patch_bucket(name, {"labels": {"a": "b"}})
        return store.patch_bucket(name, *arguments)

    monkeypatch.setattr(ObjectStore, "patch_bucket", patch_after_another)
    assert call("PUT", f"{BUCKET}/iam", json.dumps(policy).encode()).status == 412


def test_a_disk_that_refuses(call: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call("PUT", "/bucket/a", b"x")

    def fail(error: Exception) -> Any:
        def raise_it(*_: object, **__: object) -> Any:
            raise error

        return raise_it

    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    monkeypatch.setattr(ObjectStore, "open_write", fail(OSError(errno.ENOSPC, "No space left on device")))
    monkeypatch.setattr(ObjectStore, "patch", fail(full))
    monkeypatch.setattr(ObjectStore, "list", fail(OSError(errno.EIO, "Input/output error")))
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    replies = [
        call("POST", f"{UPLOAD}?uploadType=media&name=new", b"x"),
        call("PATCH", f"{OBJECTS}/a", b"{}"),
        call("GET", OBJECTS),
    ]
    assert [reply.status for reply in replies] == [403] * 3
    said = [reply.json["error"]["message"] for reply in replies]
    where = f"{call.root}, where this emulated Cloud Storage keeps its buckets"
    no_space = f"no space left in {where}: remove files or objects, or serve another folder"
    assert said == [no_space, no_space, f"{where}: Input/output error"]
    assert replies[0].json["error"]["errors"][0]["reason"] == "insufficientStorage"
    reply = call("PUT", "/bucket/new", b"x")
    assert reply.status == 403
    assert f"<Code>InsufficientStorage</Code><Message>{no_space}</Message>" in reply.body.decode()
    assert capsys.readouterr().err == f"t5x-harness: {no_space}\n"


def test_a_finished_upload_that_is_sent_again(call: Any) -> None:
    """A client that has lost the answer sends the upload again, even a long one."""
    megabyte = bytes(1 << 20)
    at = call("POST", f"{UPLOAD}?uploadType=resumable&name=a").headers["location"].partition("googleapis.com")[2]
    replies = [call("PUT", at, pieces=[megabyte] * 17) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].json == replies[1].json
    assert replies[0].json["size"] == str(17 << 20)
