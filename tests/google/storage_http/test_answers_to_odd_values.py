"""Every request gets an answer, all APIs show the stored objects, and a refused request changes nothing."""

import json
import os
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_storage import related

BUCKET = "/storage/v1/b/bucket"
GZIP = {"accept-encoding": "gzip"}  # other clients are refused an object that claims to be gzip and is not
OBJECTS, UPLOAD = f"{BUCKET}/o", "/upload/storage/v1/b/bucket/o"

texts = st.one_of(
    st.sampled_from(
        ["text/plain", "gzip", "", "\0", "\ud800", "\udfff", "\r\nx: y", "\ufffe", "\U0010ffff", "a" * 3000]
    ),
    st.text(
        st.characters(exclude_categories=()), max_size=6
    ),  # halves of surrogate pairs and control characters are among them
)
values = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from([10**400, -(10**4000)])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
FIELDS = (
    "contentType contentEncoding contentDisposition contentLanguage cacheControl customTime storageClass metadata "
    "md5Hash crc32c generation acl timeCreated retention"
).split()
mostly_texts = st.one_of(texts, texts, texts, values)
resources = st.dictionaries(st.sampled_from(FIELDS), mostly_texts, max_size=3).flatmap(
    lambda fields: st.dictionaries(texts, texts, max_size=2).map(lambda meta: {"metadata": meta, **fields})
)
buckets = st.dictionaries(
    st.sampled_from(["location", "storageClass", "labels", "lifecycle", "projectNumber", "emulatedPolicy", "x"]),
    mostly_texts,
    max_size=3,
)
header_values = st.one_of(
    texts.map(lambda text: text.encode(errors="ignore")), st.binary(max_size=6), st.sampled_from([b"", b"\xff"])
).map(lambda value: value.translate(None, b"\0\r\n"))  # servers accept none of these characters
HEADERS = (
    "content-type content-encoding content-disposition content-language cache-control x-goog-storage-class "
    "x-goog-meta-k x-goog-meta-%c3%bc x-goog-hash content-md5 x-goog-acl if-match range"
).split()
headers = st.dictionaries(st.sampled_from(HEADERS), header_values, max_size=4)
names = st.one_of(st.sampled_from(["a", "b", "c/"]), st.text(min_size=1, max_size=4))


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def by_multipart(call: Any, data: st.DataObject, name: str) -> Any:
    resource = as_json({"name": data.draw(st.one_of(st.just(name), texts)), **data.draw(resources)})
    return call("POST", f"{UPLOAD}?uploadType=multipart", *related(resource, kind=data.draw(header_values)))


def by_media(call: Any, data: st.DataObject, name: str) -> Any:
    return call("POST", f"{UPLOAD}?uploadType=media&name={quote(name)}", b"media", data.draw(headers))


def by_resumable(call: Any, data: st.DataObject, name: str) -> Any:
    resource = as_json({"name": name, **data.draw(resources)})
    kind = {"x-upload-content-type": data.draw(header_values)}
    begun = call("POST", f"{UPLOAD}?uploadType=resumable", resource, kind)
    if begun.status != 200:
        return begun
    return call("PUT", begun.headers["location"].partition("googleapis.com")[2], b"media", data.draw(headers))


def by_xml(call: Any, data: st.DataObject, name: str) -> Any:
    return call("PUT", f"/bucket/{quote(name)}", b"media", data.draw(headers))


def by_xml_parts(call: Any, data: st.DataObject, name: str) -> Any:
    begun = call("POST", f"/bucket/{quote(name)}?uploads", b"", data.draw(headers))
    if begun.status != 200:
        return begun
    upload = begun.body.decode().partition("<UploadId>")[2].partition("<")[0]
    part = call("PUT", f"/bucket/{quote(name)}?uploadId={upload}&partNumber=1", b"media")
    tag = f"<Part><PartNumber>1</PartNumber><ETag>{part.headers['etag']}</ETag></Part>"
    complete = f"<CompleteMultipartUpload>{tag}</CompleteMultipartUpload>"
    return call("POST", f"/bucket/{quote(name)}?uploadId={upload}", complete.encode(), data.draw(headers))


def by_compose(call: Any, data: st.DataObject, name: str) -> Any:
    sources = data.draw(st.one_of(st.just([{"name": "source"}] * 2), values))
    body = {"sourceObjects": sources, "destination": data.draw(st.one_of(resources, values))}
    return call("POST", f"{OBJECTS}/{quote(name, safe='')}/compose", as_json(body))


def by_copy(call: Any, data: st.DataObject, name: str) -> Any:
    how = data.draw(st.sampled_from(["copyTo", "rewriteTo"]))
    body = as_json(data.draw(resources))
    return call("POST", f"{OBJECTS}/source/{how}/b/bucket/o/{quote(name, safe='')}", body)


def by_xml_copy(call: Any, data: st.DataObject, name: str) -> Any:
    said = {"x-goog-copy-source": "bucket/source", "x-goog-metadata-directive": "REPLACE", **data.draw(headers)}
    return call("PUT", f"/bucket/{quote(name)}", b"", said)


def by_patch(call: Any, data: st.DataObject, _name: str) -> Any:
    method = data.draw(st.sampled_from(["PATCH", "PUT"]))
    return call(method, f"{OBJECTS}/source", as_json(data.draw(st.one_of(resources, values))))


def by_bucket(call: Any, data: st.DataObject, _name: str) -> Any:
    method = data.draw(st.sampled_from(["PATCH", "PUT"]))
    return call(method, BUCKET, as_json(data.draw(st.one_of(buckets, values))))


def by_policy(call: Any, data: st.DataObject, _name: str) -> Any:
    bindings = data.draw(st.one_of(values, st.just([{"role": "r"}])))
    return call("PUT", f"{BUCKET}/iam", as_json({"bindings": bindings, "version": data.draw(values)}))


def by_other_methods(call: Any, data: st.DataObject, name: str) -> Any:
    what = data.draw(st.sampled_from(["notificationConfigs", "acl", f"o/{quote(name, safe='')}/acl"]))
    return call("POST", f"{BUCKET}/{what}", as_json(data.draw(values)))


WAYS = (
    *(by_multipart, by_media, by_resumable, by_xml, by_xml_parts, by_compose, by_copy, by_xml_copy, by_patch),
    *(by_bucket, by_policy, by_other_methods),
)


def shown(call: Any) -> list[Any]:
    """Requests the stored objects through every API; returns the JSON API's resources."""
    ways = [f"{OBJECTS}", "/storage/v1/b?project=p", BUCKET, f"{BUCKET}/iam"]
    found = [call("GET", way) for way in ways]
    items = found[0].json.get("items", [])
    for item in items:
        name, path = item["name"], quote(item["name"], safe="")
        found += [call("GET", f"{OBJECTS}/{path}"), call("HEAD", f"/bucket/{path}", b"", GZIP)]
        assert call("GET", f"{OBJECTS}/{path}").json == item, name
        found += [call("GET", f"{OBJECTS}/{path}?alt=media", b"", GZIP), call("GET", f"/bucket/{path}", b"", GZIP)]
    found += [call("GET", f"/bucket?{way}") for way in ("", "list-type=2", "encoding-type=url", "uploads")]
    assert [reply.status for reply in found] == [200] * len(found)
    return [items, *(reply.json for reply in found[1:4])]


@settings(
    max_examples=int(os.environ.get("ODD_EXAMPLES", "150")),
    deadline=None,
    derandomize="ODD_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(st.data(), st.sampled_from(WAYS), names)
def test_odd_values(caller: Any, tmp_path_factory: pytest.TempPathFactory, data: Any, way: Any, name: str) -> None:
    call = caller(tmp_path_factory.mktemp("root"), "storage.buckets.")
    assert call("POST", "/storage/v1/b?project=p", b'{"name": "bucket"}').status == 200
    assert call("PUT", "/bucket/source", b"source").status == 200
    before = shown(call)
    reply = way(call, data, name)
    assert reply.status < 500, reply.body
    assert reply.status == 200 or shown(call) == before
    shown(call)
