"""The XML API: objects by their address, listings of a bucket, and multipart uploads."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from t5x_harness.google.http.answers import Answer, media_headers
from t5x_harness.google.http.bucket_api import not_allowed, not_emulated
from t5x_harness.google.http.parameters import checksums_of, generation_of, hash_header, listing_of
from t5x_harness.google.http.request import Request
from t5x_harness.google.http.resources import etag_of, rfc3339
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ANY, ObjectFields, Preconditions, SourceObject

__all__ = ["answer_xml"]

_SUFFIX = ".storage.googleapis.com"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_CONDITIONS = {
    "x-goog-if-generation-match": "generation_match",
    "x-goog-if-metageneration-match": "metageneration_match",
}
_META = "x-goog-meta-"


async def answer_xml(store: ObjectStore, request: Request) -> Answer | ObjectReader:
    """Routes a call of the XML API: ``/BUCKET/NAME``, or the bucket in the host's name.

    Raises:
      StorageError: it cannot be done.
    """
    host = request.host.partition(":")[0].lower()
    segments = list(request.segments)
    bucket = host.removesuffix(_SUFFIX) if host.endswith(_SUFFIX) else segments.pop(0)
    name = "/".join(segments)
    if not bucket:
        raise not_emulated("the list of buckets of the XML API")
    if not name:
        return await _bucket(store, request, bucket)
    parameters = request.parameters
    if "uploads" in parameters or "uploadId" in parameters:
        return await _multipart(store, request, bucket, name)
    match request.method:
        case "GET" | "HEAD":
            generation = generation_of(parameters)
            return await asyncio.to_thread(
                store.open_read, bucket, name, generation=generation, preconditions=_conditions(request)
            )
        case "PUT" if "x-goog-copy-source" in request.headers:
            return await _copy(store, request, bucket, name)
        case "PUT":
            return await _put(store, request, bucket, name)
        case "DELETE":
            generation = generation_of(parameters)
            conditions = _conditions(request)
            await asyncio.to_thread(store.delete, bucket, name, generation=generation, preconditions=conditions)
            return Answer(204)
    raise not_allowed(request)


async def _bucket(store: ObjectStore, request: Request, bucket: str) -> Answer:
    if request.method == "HEAD":
        await asyncio.to_thread(store.bucket, bucket)
        return Answer(200)
    if request.method != "GET":
        raise not_emulated(f"{request.method} of a bucket by the XML API")
    given = request.parameters
    query = {**given, "maxResults": given.get("max-keys", "1000"), "pageToken": given.get("continuation-token", "")}
    page = await asyncio.to_thread(store.list, bucket, listing_of(query))
    items = [
        f"<Contents><Key>{escape(it.name)}</Key><Generation>{it.generation}</Generation>"
        f"<MetaGeneration>{it.metageneration}</MetaGeneration><LastModified>{rfc3339(it.updated)}</LastModified>"
        f'<ETag>"{etag_of(it)}"</ETag><Size>{it.size}</Size></Contents>'
        for it in page.objects
    ]
    items += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in page.prefixes]
    more = f"<NextContinuationToken>{escape(page.next_page)}</NextContinuationToken>" if page.next_page else ""
    truncated = str(bool(page.next_page)).lower()
    name = f"<Name>{escape(bucket)}</Name>"
    return _document("ListBucketResult", name, more, f"<IsTruncated>{truncated}</IsTruncated>", *items)


async def _put(store: ObjectStore, request: Request, bucket: str, name: str) -> Answer:
    writer = await asyncio.to_thread(store.open_write, bucket, name, _fields(request), _conditions(request))
    try:
        async for chunk in request.chunks():
            await asyncio.to_thread(writer.write, chunk)
    except BaseException:
        writer.abort()
        raise
    found = await asyncio.to_thread(writer.commit, checksums_of({}, request.headers))
    headers = media_headers(found)
    return Answer(200, b"", {k: v for k, v in headers.items() if k.startswith("x-goog-") or k == "etag"})


async def _copy(store: ObjectStore, request: Request, bucket: str, name: str) -> Answer:
    of_bucket, _, of_name = unquote(request.headers["x-goog-copy-source"]).lstrip("/").partition("/")
    found = await asyncio.to_thread(
        store.copy, SourceObject(of_bucket, of_name), bucket, name, None, _conditions(request)
    )
    return _document(
        "CopyObjectResult", f"<LastModified>{rfc3339(found.updated)}</LastModified>", f'<ETag>"{etag_of(found)}"</ETag>'
    )


async def _multipart(store: ObjectStore, request: Request, bucket: str, name: str) -> Answer:
    """The four steps of a multipart upload: begin, parts, complete, abort."""
    given = request.parameters
    upload_id = given.get("uploadId", "")
    if "uploads" in given and request.method == "POST":
        upload = await asyncio.to_thread(store.multiparts.start, bucket, name, _fields(request))
        named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key><UploadId>{upload.id}</UploadId>"
        return _document("InitiateMultipartUploadResult", named)
    if request.method == "PUT":
        number = generation_of(given, "partNumber")
        if number is None:
            raise Invalid("Required: partNumber")
        writer = await asyncio.to_thread(store.multiparts.open_part, upload_id, number)
        try:
            async for chunk in request.chunks():
                await asyncio.to_thread(writer.write, chunk)
        except BaseException:
            writer.abort()
            raise
        part = await asyncio.to_thread(writer.commit, checksums_of({}, request.headers))
        return Answer(200, b"", {"etag": f'"{part.etag}"', "x-goog-hash": hash_header(part.checksums)})
    if request.method == "POST":
        found = await asyncio.to_thread(store.multiparts.complete, upload_id, _parts(await request.body()))
        named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key>"
        answered = _document("CompleteMultipartUploadResult", named, f'<ETag>"{etag_of(found)}"</ETag>')
        extra = {k: v for k, v in media_headers(found).items() if k.startswith("x-goog-")}
        return Answer(answered.status, answered.body, {**answered.headers, **extra})
    if request.method == "DELETE":
        await asyncio.to_thread(store.multiparts.abort, upload_id)
        return Answer(204)
    raise not_emulated("the list of the parts of a multipart upload")


def _parts(body: bytes) -> list[tuple[int, str]]:
    """Number and ETag of each part that completes an upload.

    Raises:
      Invalid: it is no such list.
    """
    try:
        tree = ElementTree.fromstring(body)
        parts = [part for part in tree.iter() if part.tag.rpartition("}")[2] == "Part"]
        values = [{child.tag.rpartition("}")[2]: (child.text or "").strip() for child in part} for part in parts]
        return [(int(value["PartNumber"]), value["ETag"].strip('"')) for value in values]
    except (ElementTree.ParseError, KeyError, ValueError):
        raise Invalid("The XML you provided was not well-formed or did not validate", code="MalformedXML") from None


def _fields(request: Request) -> ObjectFields:
    headers = request.headers
    meta = {k.removeprefix(_META): _utf8(v) for k, v in headers.items() if k.startswith(_META)}
    return ObjectFields(
        content_type=headers.get("content-type"),
        content_encoding=headers.get("content-encoding"),
        content_disposition=headers.get("content-disposition"),
        content_language=headers.get("content-language"),
        cache_control=headers.get("cache-control"),
        storage_class=headers.get("x-goog-storage-class"),
        metadata=dict(meta) or None,
    )


def _utf8(value: str) -> str:
    """A header's value, which came as Latin-1, as the UTF-8 that it is."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _conditions(request: Request) -> Preconditions:
    given = {ours: request.headers[theirs] for theirs, ours in _CONDITIONS.items() if theirs in request.headers}
    try:
        return Preconditions(**{name: int(value) for name, value in given.items()}) if given else ANY
    except ValueError:
        raise Invalid("A condition has to be a number") from None


def _document(root: str, *parts: str) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{_NAMESPACE}'>{''.join(parts)}</{root}>"
    return Answer(200, body.encode(), {"content-type": "application/xml; charset=UTF-8"})
