"""Multipart uploads of the XML API: begin, send parts in any order, complete or abort, and list."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from t5x_harness.google.storage.errors import Invalid, NoSuchResource
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import MultipartUpload, ObjectFields, UploadPart
from t5x_harness.google.storage_http.answers import Answer, media_headers
from t5x_harness.google.storage_http.bucket_api import not_allowed
from t5x_harness.google.storage_http.parameters import checksums_of, hash_header, number_of
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import rfc3339, xml_etag_of

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def document(root: str, namespace: str, *parts: str) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{namespace}'>{''.join(parts)}</{root}>"
    return Answer(200, body.encode(), {"content-type": "application/xml; charset=UTF-8"})


async def answer_upload_of_parts(
    store: ObjectStore, request: StorageRequest, bucket: str, name: str, fields: ObjectFields
) -> Answer:
    """Answers a request for ``/BUCKET/NAME`` with ``uploads`` or ``uploadId``."""
    named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key>"
    upload_id = request.parameters.get("uploadId")
    if upload_id is None:
        if request.method != "POST":
            raise not_allowed(request)
        begun = await asyncio.to_thread(store.multiparts.start, bucket, name, fields)
        identity = f"<UploadId>{begun.id}</UploadId>"
        return document("InitiateMultipartUploadResult", S3_NAMESPACE, named, identity)
    upload = await asyncio.to_thread(store.multiparts.get, upload_id)
    if (upload.bucket, upload.name) != (bucket, name):
        raise NoSuchResource("The requested upload was not found.", code="NoSuchUpload")
    match request.method:
        case "PUT":
            return await _take_part(store, request, upload_id)
        case "POST":
            parts = _parts(await request.body())
            found = await asyncio.to_thread(store.multiparts.complete, upload_id, parts)
            tag = f"<ETag>&quot;{xml_etag_of(found)}&quot;</ETag>"
            answered = document("CompleteMultipartUploadResult", S3_NAMESPACE, named, tag)
            extra = {k: v for k, v in media_headers(found, xml=True).items() if k.startswith("x-goog-")}
            return Answer(answered.status, answered.body, {**answered.headers, **extra})
        case "DELETE":
            await asyncio.to_thread(store.multiparts.abort, upload_id)
            return Answer(204)
        case "GET":
            return _list_parts(upload, request, named)
    raise not_allowed(request)


def list_uploads(store: ObjectStore, bucket: str) -> Answer:
    """Returns the unfinished uploads to a bucket, all on one page; raises NoSuchResource for no bucket."""
    uploads = [
        f"<Upload><Key>{escape(it.name)}</Key><UploadId>{it.id}</UploadId><Initiated>{rfc3339(it.started)}</Initiated>"
        "</Upload>"
        for it in store.multiparts.all(bucket)
    ]
    fields = f"<Bucket>{escape(bucket)}</Bucket><IsTruncated>false</IsTruncated>"
    return document("ListMultipartUploadsResult", S3_NAMESPACE, fields, *uploads)


async def _take_part(store: ObjectStore, request: StorageRequest, upload_id: str) -> Answer:
    number = number_of(request.parameters, "partNumber")
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


def _list_parts(upload: MultipartUpload, request: StorageRequest, named: str) -> Answer:
    after = number_of(request.parameters, "part-number-marker") or 0
    most = number_of(request.parameters, "max-parts")
    most = 1000 if most is None else min(most, 1000)
    if most < 0:
        raise Invalid(f"Invalid argument: max-parts has to be a number, not {most}")
    left = [part for part in upload.parts if part.number > after]
    page = left[:most]
    fields = f"<UploadId>{upload.id}</UploadId><IsTruncated>{str(len(left) > most).lower()}</IsTruncated>"
    if page and len(left) > most:
        fields += f"<NextPartNumberMarker>{page[-1].number}</NextPartNumberMarker>"
    return document("ListPartsResult", S3_NAMESPACE, named, fields, *map(_part, page))


def _part(part: UploadPart) -> str:
    return (
        f"<Part><PartNumber>{part.number}</PartNumber><LastModified>{rfc3339(part.updated)}</LastModified>"
        f"<ETag>&quot;{part.etag}&quot;</ETag><Size>{part.size}</Size></Part>"
    )


def _parts(body: bytes) -> list[tuple[int, str]]:
    """Returns the number and ETag of each part in the request to complete an upload; raises Invalid for bad XML."""
    try:
        tree = ElementTree.fromstring(body)
        parts = [part for part in tree.iter() if part.tag.rpartition("}")[2] == "Part"]
        values = [{child.tag.rpartition("}")[2]: (child.text or "").strip() for child in part} for part in parts]
        return [(int(value["PartNumber"]), value["ETag"].strip('"')) for value in values]
    except (ElementTree.ParseError, KeyError, ValueError):
        raise Invalid("The XML you provided was not well-formed or did not validate", code="MalformedXML") from None
