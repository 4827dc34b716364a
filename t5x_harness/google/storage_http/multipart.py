"""Bodies of several parts: a resource with its media, and batches of calls."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from email.message import Message as MailMessage
from email.parser import BytesHeaderParser, BytesParser
from typing import Any
from urllib.parse import urlsplit

from t5x_harness.google.asgi import Message
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage_http.answers import Answer
from t5x_harness.google.storage_http.request import StorageRequest, parse_json

_LONGEST_HEAD = 1 << 20


def boundary_of(content_type: str) -> bytes:
    """Returns the boundary in a content type; raises Invalid if there is none."""
    message = MailMessage()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if not boundary:
        raise Invalid("A multipart body needs a boundary in its content type")
    if len(boundary) > 2 and boundary[0] == boundary[-1] == "'":  # as gcloud and gsutil quote it
        boundary = boundary[1:-1]
    if not (boundary.isascii() and boundary.isprintable()):
        raise Invalid(f"A boundary has ASCII characters only, not {boundary[:80]!r}")
    return boundary.encode()


async def read_related(request: StorageRequest) -> tuple[dict[str, Any], str | None, AsyncIterator[bytes]]:
    """Returns a request's resource, and the content type of the media and the media as they arrive; raises Invalid."""
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
    """Returns the resource, and the content type, first index and delimiter of the media; None if more is needed."""
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


_MOST = 100


async def answer_batch(request: StorageRequest, call: Callable[[StorageRequest], Awaitable[Answer]]) -> Answer:
    """Answers the calls of a batch, ``multipart/mixed``, one after the other.

    Raises Invalid if the body is not a batch, or has more than 100 calls.
    """
    content_type = request.headers.get("content-type", "")
    boundary = boundary_of(content_type)
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1")
    body_of_parts = head + await request.body()
    try:
        message = BytesParser().parsebytes(body_of_parts)
        parts = [part for part in message.walk() if part.get_content_type() == "application/http"]
    except RecursionError:
        raise Invalid("The parts of the batch have parts in parts without an end") from None
    if len(parts) > _MOST:
        raise Invalid(f"A batch has at most {_MOST} calls, not {len(parts)}")
    body = bytearray()
    for part in parts:
        payload = part.get_payload(decode=True)
        answered = await call(_inner(request, payload if isinstance(payload, bytes) else b""))
        reply_to = str(part.get("content-id", "<0>")).strip("<>")
        lines = [f"HTTP/1.1 {answered.status} ", *(f"{k}: {v}" for k, v in answered.headers.items())]
        lines.append(f"Content-Length: {len(answered.body)}")
        body += b"--" + boundary + b"\r\nContent-Type: application/http\r\n"
        body += f"Content-ID: <response-{reply_to}>\r\n\r\n".encode()
        body += "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + answered.body + b"\r\n"
    body += b"--" + boundary + b"--\r\n"
    return Answer(200, bytes(body), {"content-type": f"multipart/mixed; boundary={boundary.decode('latin-1')}"})


def _inner(outer: StorageRequest, payload: bytes) -> StorageRequest:
    head, _, content = payload.lstrip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *header_lines = head.decode("latin-1").split("\n")
    words = line.split()
    if len(words) < 2:
        raise Invalid("A part of the batch is not an HTTP request")
    try:
        address = urlsplit(words[1])
    except ValueError:
        raise Invalid(f"A part of the batch is for {words[1][:80]!r}, which is not an address") from None
    if address.path.startswith("/batch"):
        raise Invalid("A batch has no batches in it")
    headers = {name.strip().lower(): value.strip() for name, _, value in (h.partition(":") for h in header_lines)}

    async def receive() -> Message:
        return {"type": "http.request", "body": content}

    scope = {
        "method": words[0].upper(),
        "scheme": outer.scheme,
        "raw_path": address.path.encode("latin-1"),
        "query_string": address.query.encode("latin-1"),
        "headers": [],
    }
    return dataclasses.replace(StorageRequest.of(scope, receive), headers=headers, host=outer.host)
