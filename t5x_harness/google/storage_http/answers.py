"""Answers: JSON, the errors of both APIs, and streamed media."""

import asyncio
import dataclasses
import json
import re
import zlib
from collections.abc import Mapping
from email.utils import formatdate
from urllib.parse import quote
from xml.sax.saxutils import escape

from t5x_harness.google.asgi import Send, answer, raw_headers
from t5x_harness.google.storage.errors import Invalid, StoreError
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import Checksums, StoredObject
from t5x_harness.google.storage_http.resources import (
    HEADER_FIELDS,
    count_of,
    etag_of,
    hash_header,
    header_text,
    xml_etag_of,
)

_READ_AT_ONCE = 1 << 20
_IN_NAMES = "!#$&'*+^`|"  # characters of header names other than letters, digits and -._~
_GZIP = 16 + zlib.MAX_WBITS


def must_unpack(found: StoredObject, asked: Mapping[str, str]) -> bool:
    """Tells whether a client that sent these headers gets the object unpacked."""
    fields = found.fields
    return (
        (fields.content_encoding or "").lower() == "gzip"
        and "gzip" not in asked.get("accept-encoding", "").lower()
        and "no-transform" not in (fields.cache_control or "").lower()
    )


async def send_unpacked(reader: ObjectReader, headers: Mapping[str, str], send: Send, *, head: bool = False) -> None:
    """Sends an object's unpacked bytes, whose number is not known in advance.

    Args:
      reader: a reader of the object, which is left open.
      headers: the headers for the packed object.

    Raises:
      Invalid: the object does not begin like gzip; nothing is sent.
      ConnectionResetError: a later part is not gzip; the answer breaks off.
    """
    size, at = reader.object.size, 0
    unpacker = zlib.decompressobj(_GZIP)
    packed = await asyncio.to_thread(reader.read, 0, min(size, _READ_AT_ONCE))
    at += len(packed)
    try:
        zlib.decompressobj(_GZIP).decompress(packed, 1)
    except zlib.error as error:
        it = reader.object
        raise Invalid(f"{it.bucket}/{it.name} has contentEncoding gzip, but is not gzip: {error}") from None
    kept = {name: value for name, value in headers.items() if name not in ("content-encoding", "accept-ranges")}
    unpacked = {**kept, "warning": "214 UploadServer gunzipped"}
    await send({"type": "http.response.start", "status": 200, "headers": raw_headers(unpacked)})
    while not head and (packed or at < size):
        try:
            if not packed:
                packed = await asyncio.to_thread(reader.read, at, min(size, at + _READ_AT_ONCE))
                at += len(packed)
            piece = await asyncio.to_thread(unpacker.decompress, packed, _READ_AT_ONCE)
        except (zlib.error, StoreError) as error:  # it is too late for an error status
            raise ConnectionResetError(str(error)) from error
        packed = unpacker.unconsumed_tail
        if unpacker.eof:  # a gzip file may have several members
            packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP)
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


_PIECE = 1 << 20
_SMALL = 1 << 16
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RANGE = re.compile(r"bytes\s*=\s*([0-9]*)-([0-9]*)")


@dataclasses.dataclass(frozen=True)
class Answer:
    """A complete answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Sends the answer, without its body if ``head`` is set."""
        headers = {"content-length": str(len(self.body)), **self.headers}
        await answer(send, self.status, b"" if head else self.body, headers)


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, _as_json(value).encode(), {"content-type": "application/json; charset=UTF-8"})


def error_json(error: StoreError) -> Answer:
    """Returns the JSON API's answer for an error; 304 has no body."""
    if error.status == 304:
        return Answer(304)
    details = [{"message": error.message, "domain": "global", "reason": error.reason}]
    body = {"error": {"code": error.status, "message": error.message, "errors": details}}
    return json_answer(body, error.status)


def error_xml(error: StoreError, *, details: str = "") -> Answer:
    if error.status == 304:
        return Answer(304)
    text = f"<Code>{error.code}</Code><Message>{xml_text(error.message)}</Message>"
    if details:
        text += f"<Details>{xml_text(details)}</Details>"
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error>{text}</Error>"
    return Answer(error.status, body.encode(), {"content-type": "application/xml; charset=UTF-8"})


def xml_text(text: str) -> str:
    """Returns a text escaped for XML, without control characters, which XML cannot hold."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def media_headers(found: StoredObject, *, xml: bool = False) -> dict[str, str]:
    """Returns the headers for an object's bytes in the JSON or the XML API."""
    fields = found.fields
    optional = {
        **{header: getattr(fields, field) for header, field in HEADER_FIELDS.items()},
        "x-goog-stored-content-encoding": fields.content_encoding or "identity",
        "x-goog-component-count": str(found.component_count) if found.component_count else None,
        **{f"x-goog-meta-{quote(name, safe=_IN_NAMES)}": value for name, value in (fields.metadata or {}).items()},
    }
    return {
        "content-type": header_text(fields.content_type or "application/octet-stream"),
        "etag": f'"{xml_etag_of(found) if xml else etag_of(found)}"',
        "last-modified": formatdate(found.updated // 1_000_000, usegmt=True),
        "accept-ranges": "bytes",
        "x-goog-generation": str(found.generation),
        "x-goog-metageneration": str(found.metageneration),
        "x-goog-hash": hash_header(Checksums(found.md5, found.crc32c)),
        "x-goog-storage-class": header_text(fields.storage_class or "STANDARD"),
        "x-goog-stored-content-length": str(found.size),
        **{name: header_text(value) for name, value in optional.items() if value is not None},
    }


async def send_media(
    reader: ObjectReader,
    asked: Mapping[str, str],
    send: Send,
    instead: Mapping[str, str],
    *,
    head: bool = False,
    xml: bool = False,
) -> None:
    """Sends an object's bytes, or the requested range of them.

    Args:
      reader: a reader of the object, which is closed at the end.
      asked: the request's headers. Like Google, this ignores an invalid ``Range``, and every range of a gzip object
        that is sent unpacked because the client does not accept gzip.
      instead: headers of the answer in place of the object's own.

    Raises:
      Invalid: the bytes do not have the content encoding of the object; nothing is sent.
    """
    found, headers = reader.object, {**media_headers(reader.object, xml=xml), **instead}
    wanted = _understood(asked.get("range", ""))
    try:
        if must_unpack(found, asked):
            await send_unpacked(reader, headers, send, head=head)
            return
        span = _span(wanted, found.size)
        if span is None:
            await _no_such_range(wanted, found.size, xml=xml).send(send, head=head)
            return
        start, end = span
        headers = {"content-length": str(end - start), **headers}
        if wanted:
            headers["content-range"] = f"bytes {start}-{end - 1}/{found.size}"
        await send({"type": "http.response.start", "status": 206 if wanted else 200, "headers": raw_headers(headers)})
        if head or start == end:
            await send({"type": "http.response.body", "body": b""})
        else:
            await _send_bytes(reader, start, end, send)
    finally:
        reader.close()


def _no_such_range(wanted: str, size: int, *, xml: bool) -> Answer:
    range_of = {"content-range": f"bytes */{size}"}
    if not xml:
        text = f"The requested range cannot be satisfied: bytes={wanted} of {size} bytes"
        return Answer(416, text.encode(), range_of)
    error = StoreError("The requested range cannot be satisfied.", code="InvalidRange")
    error.status = 416
    answered = error_xml(error, details=f"bytes={wanted} of {size} bytes")
    return dataclasses.replace(answered, headers={**answered.headers, **range_of})


async def _send_bytes(reader: ObjectReader, start: int, end: int, send: Send) -> None:
    """Sends a range that is not empty; the answer breaks off if someone truncates the file meanwhile."""
    try:
        while start < end:
            until = min(end, start + _PIECE)
            # A hop to a thread takes longer than a small read.
            small = until - start <= _SMALL
            piece = reader.read(start, until) if small else await asyncio.to_thread(reader.read, start, until)
            start = until
            await send({"type": "http.response.body", "body": piece, "more_body": start < end})
    except StoreError as error:
        raise ConnectionResetError(str(error)) from error


def _understood(wanted: str) -> str:
    """Returns the range of a ``Range`` header as ``FIRST-LAST``, or an empty string for no valid range."""
    match = _RANGE.fullmatch(wanted.strip())
    if match is None or not any(match.groups()):
        return ""
    first, last = match.groups()
    return "" if first and last and count_of(last) < count_of(first) else f"{first}-{last}"


def _span(wanted: str, size: int) -> tuple[int, int] | None:
    """Returns the first byte and the end of a range from :func:`_understood`, or None if it has no byte."""
    if not wanted:
        return 0, size
    first, _, last = wanted.partition("-")
    if not first:
        return (max(0, size - count_of(last)), size) if size and count_of(last) else None
    start, end = count_of(first), min(size, count_of(last) + 1) if last else size
    return (start, end) if start < size else None
