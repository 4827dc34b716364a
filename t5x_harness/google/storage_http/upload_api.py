"""The upload API: media in one request, media with a resource, and resumable uploads."""

import asyncio
import re
from collections.abc import AsyncIterator
from email.parser import BytesHeaderParser
from typing import Any
from urllib.parse import quote

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.calls import write_object
from t5x_harness.google.storage_http.json_api import NotAllowed
from t5x_harness.google.storage_http.request import StorageRequest, boundary_of, parse_json
from t5x_harness.google.storage_http.resources import (
    checksums_of,
    count_of,
    fields_of,
    object_resource,
    preconditions_of,
)

_LONGEST_HEAD = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]+)-([0-9]+|\*)|\*)/([0-9]+|\*)")


async def answer_upload(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    """Answers ``/upload/storage/v1/b/BUCKET/o``."""
    upload_id = request.parameters.get("upload_id")
    if upload_id is not None:
        return await resume_upload(store, request, upload_id)
    if request.method not in ("POST", "PUT"):
        raise NotAllowed(request)
    match request.parameters.get("uploadType"):
        case "resumable":
            return await _start(store, request, bucket)
        case "multipart":
            resource, content_type, media = await _read_related(request)
        case "media" | None:
            resource, content_type, media = {}, request.headers.get("content-type"), request.chunks()
        case other:
            raise Invalid(f"There is no uploadType {other}")
    fields = fields_of(resource, content_type)
    conditions, expected = preconditions_of(request.parameters), checksums_of(resource, request.headers)
    found = await write_object(store, bucket, _name(request, resource), fields, conditions, media, expected)
    return json_answer(object_resource(found, request.origin))


def _name(request: StorageRequest, resource: dict[str, Any]) -> str:
    name = request.parameters.get("name", resource.get("name"))
    if not isinstance(name, str):
        raise Invalid("Required: name", reason="required")
    return name


async def _start(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    resource = await request.json()
    upload = await asyncio.to_thread(
        store.uploads.start,
        bucket,
        _name(request, resource),
        fields_of(resource, request.headers.get("x-upload-content-type")),
        preconditions_of(request.parameters),
        checksums_of(resource, request.headers),
    )
    path = "/".join(quote(part, safe="") for part in request.segments)
    address = f"{request.origin}/{path}?uploadType=resumable&name={quote(upload.name, safe='')}&upload_id={upload.id}"
    return Answer(200, b"", {"location": address, "x-guploader-uploadid": upload.id})


async def resume_upload(store: ObjectStore, request: StorageRequest, upload_id: str) -> Answer:
    """Receives bytes of a resumable upload, or answers how many it has received."""
    if request.method == "DELETE":
        await asyncio.to_thread(store.uploads.cancel, upload_id)
        return Answer(499)
    upload = await asyncio.to_thread(store.uploads.get, upload_id)
    if upload.finished is not None:  # the client has lost the last answer
        return json_answer(object_resource(upload.finished, request.origin))
    first, total, is_last = _content_range(request)
    received = upload.received
    if first is not None:
        at = first
        async for chunk in request.chunks():
            received = await asyncio.to_thread(store.uploads.append, upload_id, at, chunk)
            at += len(chunk)
    if total is not None and received > total:
        raise Invalid(f"The upload has {received} bytes, more than the {total} that were announced")
    if received == total or is_last:
        checksums = checksums_of({}, request.headers)
        found = await asyncio.to_thread(store.uploads.finish, upload_id, checksums)
        return json_answer(object_resource(found, request.origin))
    progress = {"range": f"bytes=0-{received - 1}"} if received else {}
    return Answer(308, b"", {"x-guploader-uploadid": upload.id, **progress})


def _content_range(request: StorageRequest) -> tuple[int | None, int | None, bool]:
    """Returns where the bytes of a request belong.

    Returns:
      The offset, None without bytes; the final size, None if it is not known; and whether the upload then ends with
      this request, as Node's client says with ``bytes 0-*/*``.
    """
    text = request.headers.get("content-range")
    if text is None:
        return 0, None, True
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None:
        raise Invalid(f"Failed to parse Content-Range header: {text}")
    first, last, total = match.groups()
    size = count_of(total) if total != "*" else None
    return (count_of(first) if first is not None else None), size, last == "*" and size is None


async def _read_related(request: StorageRequest) -> tuple[dict[str, Any], str | None, AsyncIterator[bytes]]:
    """Returns a request's resource, the media's content type, and the media as they arrive; raises Invalid."""
    dashed = b"--" + boundary_of(request.headers.get("content-type", ""))
    chunks = request.chunks()
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if (parts := _heads(held, dashed)) is not None:
            resource, content_type, media_at, delimiter = parts
            return resource, content_type, _media(bytes(held[media_at:]), chunks, delimiter)
        if len(held) > _LONGEST_HEAD + (1 << 20):
            break
    raise Invalid("Multipart must have two parts: the resource and the media")


def _heads(held: bytearray, dashed: bytes) -> tuple[dict[str, Any], str | None, int, bytes] | None:
    """Returns the resource, and the media's content type, first index and delimiter; None if it needs more bytes."""
    first = held.find(dashed)
    end = held.find(b"\n", first) if first >= 0 else -1
    if end < 0:
        return None
    newline = b"\r\n" if held[end - 1 : end] == b"\r" else b"\n"  # gsutil sends bare line feeds
    delimiter = newline + dashed
    json_at = held.find(newline * 2, first)
    second = held.find(delimiter, json_at) if json_at >= 0 else -1
    media_at = held.find(newline * 2, second + len(delimiter)) if second >= 0 else -1
    if media_at < 0:
        return None
    head = bytes(held[second + len(delimiter) : media_at]).lstrip(b"\r\n")
    found = BytesHeaderParser().parsebytes(head)["content-type"]
    if found is not None and not isinstance(found, str):
        raise Invalid("The content type of the media has to be ASCII")
    content_type: str | None = found
    skip = 2 * len(newline)
    return parse_json(bytes(held[json_at + skip : second])), content_type, media_at + skip, delimiter


async def _media(held: bytes, chunks: AsyncIterator[bytes], delimiter: bytes) -> AsyncIterator[bytes]:
    """Yields the bytes up to the last delimiter, which may be split between two chunks."""
    tail = len(delimiter) + len(b"--\r\n")
    async for chunk in chunks:
        held += chunk
        if len(held) > tail:
            yield held[:-tail]
            held = held[-tail:]
    end = held.rfind(delimiter + b"--")
    if end < 0:
        raise Invalid("The last part of the multipart body does not end")
    if end:
        yield held[:end]
