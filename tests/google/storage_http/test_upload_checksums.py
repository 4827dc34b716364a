"""The MD5 and CRC32C that a client sends are checked in every kind of upload."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import google_crc32c
import pytest
from serving_storage import related

BODY = b"some bytes"
UPLOAD = "/upload/storage/v1/b/bucket/o"
RIGHT = {
    "md5": base64.b64encode(hashlib.md5(BODY).digest()).decode(),
    "crc32c": base64.b64encode(google_crc32c.Checksum(BODY).digest()).decode(),
}
WRONG = {"md5": base64.b64encode(bytes(16)).decode(), "crc32c": base64.b64encode(bytes(4)).decode()}
IN_RESOURCE = {"md5": "md5Hash", "crc32c": "crc32c"}


def media(call: Any, headers: Mapping[str, str], _resource: Mapping[str, str]) -> Any:
    return call("POST", f"{UPLOAD}?uploadType=media&name=a", BODY, headers)


def multipart(call: Any, headers: Mapping[str, str], resource: Mapping[str, str]) -> Any:
    body, content = related(json.dumps({"name": "a", **resource}).encode(), BODY)
    return call("POST", f"{UPLOAD}?uploadType=multipart", body, {**headers, **content})


def resumable(call: Any, headers: Mapping[str, str], resource: Mapping[str, str]) -> Any:
    begun = call("POST", f"{UPLOAD}?uploadType=resumable", json.dumps({"name": "a", **resource}).encode())
    at = begun.headers["location"].removeprefix("https://storage.googleapis.com")
    assert call("PUT", at, BODY[:4], {"content-range": f"bytes 0-3/{len(BODY)}"}).status == 308
    last = {"content-range": f"bytes 4-{len(BODY) - 1}/{len(BODY)}"}
    return call("PUT", at, BODY[4:], {**last, **headers})


def xml(call: Any, headers: Mapping[str, str], _resource: Mapping[str, str]) -> Any:
    return call("PUT", "/bucket/a", BODY, headers)


def xml_part(call: Any, headers: Mapping[str, str], _resource: Mapping[str, str]) -> Any:
    begun = ElementTree.fromstring(call("POST", "/bucket/a?uploads").body)
    upload = next(str(it.text) for it in begun.iter() if it.tag.endswith("UploadId"))
    sent = call("PUT", f"/bucket/a?uploadId={upload}&partNumber=1", BODY, headers)
    if sent.status != 200:
        return sent
    tag = sent.headers["etag"]
    parts = f"<X><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></X>".encode()
    return call("POST", f"/bucket/a?uploadId={upload}", parts)


BY_HEADERS = [media, multipart, resumable, xml, xml_part]
BY_RESOURCE = [multipart, resumable]


def headers_of(kind: str, value: str, plain: bool = False) -> dict[str, str]:
    return {"content-md5": value} if plain else {"x-goog-hash": f"{kind}={value}"}


@pytest.mark.parametrize("kind", ["md5", "crc32c"])
@pytest.mark.parametrize("upload", BY_HEADERS, ids=lambda it: it.__name__)
def test_headers(call: Any, upload: Any, kind: str) -> None:
    refused = upload(call, headers_of(kind, WRONG[kind]), {})
    assert refused.status == 400
    name = {"md5": "MD5 hash", "crc32c": "CRC32C"}[kind]
    told = f'Provided {name} "{WRONG[kind]}" doesn\'t match calculated {name} "{RIGHT[kind]}".'
    assert told in refused.body.decode().replace('\\"', '"')
    assert call("GET", "/storage/v1/b/bucket/o/a").status == 404
    assert upload(call, headers_of(kind, RIGHT[kind]), {}).status == 200
    assert call("GET", "/bucket/a").body == BODY


@pytest.mark.parametrize("upload", [media, xml, xml_part], ids=lambda it: it.__name__)
def test_content_md5(call: Any, upload: Any) -> None:
    assert upload(call, headers_of("md5", WRONG["md5"], plain=True), {}).status == 400
    assert upload(call, headers_of("md5", RIGHT["md5"], plain=True), {}).status == 200


@pytest.mark.parametrize("kind", ["md5", "crc32c"])
@pytest.mark.parametrize("upload", BY_RESOURCE, ids=lambda it: it.__name__)
def test_resources(call: Any, upload: Any, kind: str) -> None:
    refused = upload(call, {}, {IN_RESOURCE[kind]: WRONG[kind]})
    assert (refused.status, refused.json["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert call("GET", "/storage/v1/b/bucket/o/a").status == 404
    assert upload(call, {}, {IN_RESOURCE[kind]: RIGHT[kind]}).status == 200


@pytest.mark.parametrize("upload", BY_HEADERS, ids=lambda it: it.__name__)
def test_a_refused_upload_leaves_what_was_there(call: Any, upload: Any) -> None:
    call("PUT", "/bucket/a", b"before")
    both = f"crc32c={WRONG['crc32c']},md5={RIGHT['md5']}"
    assert upload(call, {"x-goog-hash": both}, {}).status == 400
    assert call("GET", "/bucket/a").body == b"before"


def test_the_checksums_are_told(call: Any) -> None:
    shown = media(call, {}, {}).json
    assert (shown["md5Hash"], shown["crc32c"]) == (RIGHT["md5"], RIGHT["crc32c"])
    told = f"crc32c={RIGHT['crc32c']},md5={RIGHT['md5']}"
    assert call("GET", "/bucket/a").headers["x-goog-hash"] == told
    assert xml(call, {}, {}).headers["x-goog-hash"] == told
