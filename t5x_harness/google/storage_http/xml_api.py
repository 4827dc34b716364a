"""The XML API: objects by their address, listings of a bucket, and multipart uploads."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote_to_bytes

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject
from t5x_harness.google.storage_http.answers import Answer, media_headers
from t5x_harness.google.storage_http.bucket_api import not_allowed, not_emulated
from t5x_harness.google.storage_http.conditions import open_checked, with_entity_tags
from t5x_harness.google.storage_http.parameters import checksums_of, number_of
from t5x_harness.google.storage_http.request import StorageRequest, utf8_text
from t5x_harness.google.storage_http.resources import HEADER_FIELDS, rfc3339, xml_etag_of
from t5x_harness.google.storage_http.threads import inline_or_in_thread, write_object
from t5x_harness.google.storage_http.xml_listing import list_bucket
from t5x_harness.google.storage_http.xml_multipart import S3_NAMESPACE, answer_upload_of_parts, document, list_uploads

_SUFFIX = ".storage.googleapis.com"
_META = "x-goog-meta-"
_NOT_EMULATED = frozenset(
    "acl billing compose cors defaultObjectAcl encryption encryptionConfig lifecycle location logging policy restore "
    "retention storageClass tagging versioning versions website websiteConfig".split()
)
"""Parameters that change the meaning of a request, which would otherwise read or write the wrong thing."""


async def answer_xml(store: ObjectStore, request: StorageRequest) -> Answer | ObjectReader:
    """Routes a call of the XML API: ``/BUCKET/NAME``, or the bucket in the host's name."""
    host = request.host.partition(":")[0].lower()
    segments = list(request.segments)
    bucket = host.removesuffix(_SUFFIX) if host.endswith(_SUFFIX) else segments.pop(0)
    name = "/".join(segments)
    if not bucket:
        raise not_emulated("the list of buckets of the XML API")
    parameters = request.parameters
    if asked := _NOT_EMULATED & set(parameters):
        raise not_emulated(f"?{min(asked)} of the XML API")
    if not name:
        return await _bucket(store, request, bucket)
    if "uploads" in parameters or "uploadId" in parameters:
        return await answer_upload_of_parts(store, request, bucket, name, _fields(request))
    match request.method:
        case "GET" | "HEAD":
            return await inline_or_in_thread(_read, store, request, bucket, name)
        case "PUT" if "x-goog-copy-source" in request.headers:
            return await _copy(store, request, bucket, name)
        case "PUT":
            return await _put(store, request, bucket, name)
        case "DELETE":
            generation = number_of(parameters, "generation")
            conditions = await with_entity_tags(store, bucket, name, _conditions(request), request.headers)
            await asyncio.to_thread(store.delete, bucket, name, generation=generation, preconditions=conditions)
            return Answer(204)
    raise not_allowed(request)


async def _bucket(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    if request.method == "HEAD":
        await asyncio.to_thread(store.bucket, bucket)
        return Answer(200)
    if request.method != "GET":
        raise not_emulated(f"{request.method} of a bucket by the XML API")
    if "uploads" in request.parameters:
        return await asyncio.to_thread(list_uploads, store, bucket)
    return await asyncio.to_thread(list_bucket, store, bucket, request.parameters)


def _read(store: ObjectStore, request: StorageRequest, bucket: str, name: str, *, wait: bool = True) -> ObjectReader:
    generation, conditions = number_of(request.parameters, "generation"), _conditions(request)
    return open_checked(store, SourceObject(bucket, name, generation, conditions), request.headers, xml=True, wait=wait)


async def _put(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    conditions = await with_entity_tags(store, bucket, name, _conditions(request), request.headers)
    expected = checksums_of({}, request.headers)
    found = await write_object(store, bucket, name, _fields(request), conditions, request.chunks(), expected)
    headers = media_headers(found, xml=True)
    return Answer(200, b"", {k: v for k, v in headers.items() if k.startswith("x-goog-") or k == "etag"})


async def _copy(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    headers = request.headers
    copied = utf8_text(unquote_to_bytes(headers["x-goog-copy-source"].encode("latin-1")), "x-goog-copy-source")
    of_bucket, _, of_name = copied.lstrip("/").partition("/")
    generation = number_of(headers, "x-goog-copy-source-generation")
    source = SourceObject(of_bucket, of_name, generation, _conditions(request, "x-goog-copy-source-if-"))
    match headers.get("x-goog-metadata-directive", "COPY"):
        case "COPY":
            fields = None
        case "REPLACE":
            fields = _fields(request)
        case other:
            raise Invalid(f"x-goog-metadata-directive is COPY or REPLACE, not {other}")
    found = await asyncio.to_thread(store.copy, source, bucket, name, fields, _conditions(request))
    tag = f"<ETag>&quot;{xml_etag_of(found)}&quot;</ETag>"
    return document("CopyObjectResult", S3_NAMESPACE, f"<LastModified>{rfc3339(found.updated)}</LastModified>", tag)


def _fields(request: StorageRequest) -> ObjectFields:
    headers = {name: _utf8(value) for name, value in request.headers.items()}
    meta = {name.removeprefix(_META): value for name, value in headers.items() if name.startswith(_META)}
    return ObjectFields(
        content_type=headers.get("content-type"),
        storage_class=headers.get("x-goog-storage-class"),
        metadata=meta or None,
        **{field: headers.get(header) for header, field in HEADER_FIELDS.items()},
    )


def _utf8(value: str) -> str:
    """Decodes a header's value, which was read as Latin-1, as UTF-8 if it is valid."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _conditions(request: StorageRequest, prefix: str = "x-goog-if-") -> Preconditions:
    return Preconditions(
        generation_match=number_of(request.headers, f"{prefix}generation-match"),
        metageneration_match=number_of(request.headers, f"{prefix}metageneration-match"),
    )
