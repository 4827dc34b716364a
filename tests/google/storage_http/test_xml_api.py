"""The XML API: both versions of listings, conditions, copies, lists of uploads, and refused requests."""

import hashlib
import re
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import pytest

NAMES = ["a", "b/1", "b/2", "b/3/x", "c d+%", "é", "z/1"]
PAGES = {
    "": NAMES,
    "delimiter=/": ["a", "b/", "c d+%", "é", "z/"],
    "delimiter=/&prefix=b/": ["b/1", "b/2", "b/3/"],
}


def tree_of(answer: Any) -> ElementTree.Element:
    assert answer.status == 200, answer.body
    root = ElementTree.fromstring(answer.body)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def listed(root: ElementTree.Element) -> list[str]:
    """Returns the names and prefixes of a page."""
    return [str(it.text) for it in root.iter() if it.tag == "Key"] + [
        str(it.text) for it in root.findall("CommonPrefixes/Prefix")
    ]


@pytest.fixture
def filled(call: Any) -> Any:
    for name in NAMES:
        assert call("PUT", f"/bucket/{quote(name)}", name.encode()).status == 200
    return call


@pytest.mark.parametrize(("query", "go_on"), [("", "marker"), ("list-type=2&", "continuation-token")])
@pytest.mark.parametrize(("scope", "wanted"), PAGES.items())
@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_pages(filled: Any, query: str, go_on: str, scope: str, wanted: list[str], most: int) -> None:
    seen: list[str] = []
    place = ""
    for _ in range(len(NAMES) + 1):
        page = tree_of(filled("GET", f"/bucket?{query}{scope}&max-keys={most}&{go_on}={quote(place)}"))
        assert page.findtext("MaxKeys") == str(most)
        if query:
            assert page.findtext("KeyCount") == str(len(listed(page)))
        else:
            assert page.findtext("Marker") == place
        seen += listed(page)
        place = page.findtext("NextContinuationToken" if query else "NextMarker") or ""
        assert page.findtext("IsTruncated") == str(bool(place)).lower()
        if not place:
            break
    assert sorted(seen) == sorted(wanted)


def test_a_start_is_behind_a_name(filled: Any) -> None:
    assert listed(tree_of(filled("GET", "/bucket?list-type=2&start-after=b/3/x"))) == ["c d+%", "z/1", "é"]
    assert listed(tree_of(filled("GET", "/bucket?marker=z/1"))) == ["é"]
    assert listed(tree_of(filled("GET", "/bucket?max-keys=0"))) == []


def test_what_is_told_of_an_object(filled: Any) -> None:
    shown = filled("GET", "/storage/v1/b/bucket/o/a").json
    it = tree_of(filled("GET", "/bucket?prefix=a&list-type=2&fetch-owner=true")).find("Contents")
    assert it is not None
    told = {child.tag: child.text for child in it}
    assert told["Generation"] == shown["generation"]
    assert (told["MetaGeneration"], told["Size"], told["LastModified"]) == ("1", "1", shown["updated"])
    assert told["ETag"] == filled("HEAD", "/bucket/a").headers["etag"]
    assert it.findtext("Owner/ID") == "t5x-harness"


def test_names_that_xml_cannot_hold_are_encoded_on_demand(filled: Any) -> None:
    names = [*NAMES, "control\x01\x1f", "<&>"]
    for name in names:
        filled("PUT", f"/bucket/{quote(name)}", b"")
    page = tree_of(filled("GET", "/bucket?encoding-type=url"))
    assert page.findtext("EncodingType") == "url"
    assert sorted(unquote(name) for name in listed(page)) == sorted(names)
    prefixed = tree_of(
        filled("GET", "/bucket?encoding-type=url&prefix=c%20d&delimiter=%2B&list-type=2&start-after=%01")
    )
    assert [prefixed.findtext(name) for name in ("Prefix", "Delimiter", "StartAfter")] == ["c%20d", "%2B", "%01"]
    assert listed(prefixed) == ["c%20d%2B"]


@pytest.mark.parametrize(
    ("method", "target", "headers", "status", "code"),
    [
        ("GET", "/none-such", {}, 404, "NoSuchBucket"),
        ("GET", "/none-such/a", {}, 404, "NoSuchBucket"),
        ("PUT", "/none-such/a", {}, 404, "NoSuchBucket"),
        ("GET", "/bucket/none", {}, 404, "NoSuchKey"),
        ("DELETE", "/bucket/none", {}, 404, "NoSuchKey"),
        ("GET", "/bucket?encoding-type=xml", {}, 400, "InvalidArgument"),
        ("GET", "/bucket?max-keys=-1", {}, 400, "InvalidArgument"),
        ("GET", "/bucket?max-keys=many", {}, 400, "InvalidArgument"),
        ("PUT", "/bucket/a", {"x-goog-if-generation-match": "one"}, 400, "InvalidArgument"),
        ("PUT", "/bucket/a", {"x-goog-if-generation-match": "0"}, 412, "PreconditionFailed"),
        ("PUT", "/bucket/a", {"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, 400, "BadDigest"),
        ("PUT", "/bucket/a?uploadId=none&partNumber=1", {}, 404, "NoSuchUpload"),
        ("POST", "/bucket/a?uploadId=none", {}, 404, "NoSuchUpload"),
        ("PUT", "/bucket/a?compose", {}, 403, "NotImplemented"),
        ("GET", "/bucket/a?acl", {}, 403, "NotImplemented"),
        ("GET", "/bucket?versioning", {}, 403, "NotImplemented"),
        ("PUT", "/bucket/b", {"x-goog-copy-source": "bucket/none"}, 404, "NoSuchKey"),
        (
            "PUT",
            "/bucket/b",
            {"x-goog-copy-source": "bucket/a", "x-goog-metadata-directive": "MERGE"},
            400,
            "InvalidArgument",
        ),
        ("POST", "/bucket/a", {}, 405, "MethodNotAllowed"),
    ],
)
def test_errors_have_the_codes_of_the_xml_api(
    filled: Any, method: str, target: str, headers: dict[str, str], status: int, code: str
) -> None:
    refused = filled(method, target, b"x" if method == "PUT" else b"", headers)
    assert refused.status == status
    assert refused.headers["content-type"] == "application/xml; charset=UTF-8"
    error = ElementTree.fromstring(refused.body)
    assert (error.tag, error.findtext("Code")) == ("Error", code)
    assert error.findtext("Message")
    assert filled("GET", "/bucket/a").body == b"a"


def test_conditions_on_generations(filled: Any) -> None:
    generation = filled("HEAD", "/bucket/a").headers["x-goog-generation"]
    right, wrong = {"x-goog-if-generation-match": generation}, {"x-goog-if-generation-match": "1"}
    for method in ("GET", "PUT", "DELETE"):
        assert filled(method, "/bucket/a", b"", wrong).status == 412
    assert filled("GET", "/bucket/a", headers=right).body == b"a"
    assert filled("PUT", "/bucket/a", b"new", {**right, "x-goog-if-metageneration-match": "2"}).status == 412
    assert filled("PUT", "/bucket/a", b"new", {**right, "x-goog-if-metageneration-match": "1"}).status == 200
    assert filled("DELETE", "/bucket/a", headers=right).status == 412
    assert filled("PUT", "/bucket/new", b"", {"x-goog-if-generation-match": "0"}).status == 200


def test_entity_tags_and_times(filled: Any) -> None:
    media = "/storage/v1/b/bucket/o/a?alt=media"
    changed, tag = (filled("HEAD", "/bucket/a").headers[name] for name in ("last-modified", "etag"))
    for path, of_path in (("/bucket/a", tag), (media, filled("GET", media).headers["etag"])):
        for headers, status in (
            ({"if-match": of_path}, 200),
            ({"if-match": f'"other", {of_path}'}, 200),
            ({"if-match": '"other"'}, 412),
            ({"if-none-match": of_path}, 304),
            ({"if-none-match": '"other"'}, 200),
            ({"if-none-match": "*"}, 304),
            ({"if-modified-since": changed}, 304),
            ({"if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 200),
            ({"if-modified-since": "some day"}, 200),
            ({"if-unmodified-since": changed}, 200),
            ({"if-unmodified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 412),
        ):
            assert filled("GET", path, headers=headers).status == status, headers
    assert filled("PUT", "/bucket/new", b"", {"if-match": "*"}).status == 412
    assert filled("PUT", "/nowhere/a", b"", {"if-match": "*"}).status == 404
    assert filled("PUT", "/bucket/new", b"", {"if-none-match": "*"}).status == 200
    assert filled("PUT", "/bucket/a", b"", {"if-match": '"other"'}).status == 412
    assert filled("PUT", "/bucket/a", b"", {"if-none-match": "*"}).status == 412
    assert filled("PUT", "/bucket/a", b"", {"if-none-match": tag}).status == 412
    assert filled("PUT", "/bucket/a", b"", {"if-match": tag}).status == 200
    assert filled("DELETE", "/bucket/a", headers={"if-match": tag}).status == 412  # it has another generation now
    assert filled("DELETE", "/bucket/a", headers={"if-match": "*"}).status == 204


def test_the_bucket_may_be_in_the_hosts_name(filled: Any) -> None:
    host = {"host": "bucket.storage.googleapis.com"}
    assert filled("GET", "/b/1", headers=host).body == b"b/1"
    assert "b/1" in listed(tree_of(filled("GET", "/?prefix=b", headers=host)))


def test_a_copy_takes_the_fields_with_it_or_new_ones(filled: Any) -> None:
    filled("PUT", "/bucket/a", b"a", {"content-type": "text/x", "x-goog-meta-k": "v"})
    generation = filled("HEAD", "/bucket/a").headers["x-goog-generation"]
    source = {"x-goog-copy-source": "/bucket/a", "x-goog-copy-source-generation": generation}
    assert filled("PUT", "/bucket/same", headers=source).status == 200
    assert filled("PUT", "/bucket/new", headers={**source, "x-goog-metadata-directive": "REPLACE"}).status == 200
    same, new = filled("GET", "/bucket/same"), filled("GET", "/bucket/new")
    assert (same.body, same.headers["content-type"], same.headers["x-goog-meta-k"]) == (b"a", "text/x", "v")
    assert (new.body, "x-goog-meta-k" in new.headers) == (b"a", False)
    refused = {**source, "x-goog-copy-source-if-generation-match": "1"}
    assert filled("PUT", "/bucket/no", headers=refused).status == 412


def begin(call: Any, name: str) -> str:
    return str(tree_of(call("POST", f"/bucket/{quote(name)}?uploads")).findtext("UploadId"))


def test_unfinished_uploads_and_their_parts_are_listed(call: Any) -> None:
    upload = begin(call, "m & n")
    for number in (3, 1):
        assert call("PUT", f"/bucket/m%20%26%20n?uploadId={upload}&partNumber={number}", b"x" * number).status == 200
    uploads = tree_of(call("GET", "/bucket?uploads"))
    assert [(it.findtext("Key"), it.findtext("UploadId")) for it in uploads.iter("Upload")] == [("m & n", upload)]
    parts = tree_of(call("GET", f"/bucket/m%20%26%20n?uploadId={upload}"))
    assert [(it.findtext("PartNumber"), it.findtext("Size")) for it in parts.iter("Part")] == [("1", "1"), ("3", "3")]
    first = tree_of(call("GET", f"/bucket/m%20%26%20n?uploadId={upload}&max-parts=1"))
    assert (first.findtext("IsTruncated"), first.findtext("NextPartNumberMarker")) == ("true", "1")
    second = tree_of(call("GET", f"/bucket/m%20%26%20n?uploadId={upload}&part-number-marker=1"))
    assert [it.findtext("PartNumber") for it in second.iter("Part")] == ["3"]
    assert call("PUT", f"/bucket/other?uploadId={upload}&partNumber=1", b"").status == 404
    assert call("DELETE", f"/bucket/m%20%26%20n?uploadId={upload}").status == 204
    assert tree_of(call("GET", "/bucket?uploads")).find("Upload") is None
    assert call("GET", "/bucket/m%20%26%20n").status == 404


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"<CompleteMultipartUpload>", "MalformedXML"),
        (b"<X></X>", "MalformedXML"),
        (b"<X><Part><PartNumber>2</PartNumber><ETag>x</ETag></Part></X>", "InvalidPart"),
    ],
)
def test_an_upload_that_cannot_be_completed(call: Any, sent: bytes, code: str) -> None:
    upload = begin(call, "m")
    call("PUT", f"/bucket/m?uploadId={upload}&partNumber=1", b"x")
    refused = call("POST", f"/bucket/m?uploadId={upload}", sent)
    assert (refused.status, ElementTree.fromstring(refused.body).findtext("Code")) == (400, code)


def test_entity_tags_are_md5_where_there_is_one(call: Any) -> None:
    """Google's XML API does the same; the JSON API has other tags, and so have composed objects."""
    md5 = f'"{hashlib.md5(b"body").hexdigest()}"'
    call("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=by-json", b"body")
    assert call("PUT", "/bucket/by-xml", b"body").headers["etag"] == md5
    call("POST", "/storage/v1/b/bucket/o/composed/compose", b'{"sourceObjects":[{"name":"by-xml"}]}')
    copied = call("PUT", "/bucket/copied", headers={"x-goog-copy-source": "/bucket/by-json"}).body.decode()
    assert f"<ETag>{md5.replace(chr(34), '&quot;')}</ETag>" in copied
    call("PATCH", "/storage/v1/b/bucket/o/by-json", b'{"contentType":"x/y"}')
    tags = {name: call("HEAD", f"/bucket/{name}").headers["etag"] for name in ("by-json", "by-xml", "copied")}
    assert set(tags.values()) == {md5}
    composed = call("HEAD", "/bucket/composed").headers["etag"]
    resource = call("GET", "/storage/v1/b/bucket/o/composed").json
    assert composed == f'"{resource["etag"]}"' != md5
    assert call("GET", "/storage/v1/b/bucket/o/by-xml").json["etag"] not in md5
    told = re.findall("<ETag>&quot;(.*?)&quot;</ETag>", call("GET", "/bucket").body.decode())
    assert [f'"{tag}"' for tag in told] == [md5, md5, composed, md5]


def test_a_range_behind_the_end_is_refused_in_xml(call: Any) -> None:
    call("PUT", "/bucket/a", b"0123456789")
    reply = call("GET", "/bucket/a", headers={"range": "bytes=10-"})
    assert (reply.status, reply.headers["content-range"]) == (416, "bytes */10")
    assert reply.headers["content-type"] == "application/xml; charset=UTF-8"
    assert reply.body.decode() == (
        "<?xml version='1.0' encoding='UTF-8'?><Error><Code>InvalidRange</Code>"
        "<Message>The requested range cannot be satisfied.</Message><Details>bytes=10- of 10 bytes</Details></Error>"
    )
    plain = call("GET", "/storage/v1/b/bucket/o/a?alt=media", headers={"range": "bytes=10-"})
    assert (plain.status, plain.body) == (416, b"The requested range cannot be satisfied: bytes=10- of 10 bytes")


def test_errors_are_xml_whatever_is_named(call: Any) -> None:
    reply = call("GET", "/bucket/%01%3C")
    assert ElementTree.fromstring(reply.body).findtext("Message") == "No such object: bucket/\ufffd<"
