"""Batches: several calls of the JSON API in one request."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from urllib.parse import urlsplit

from t5x_harness.google.asgi import Message
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage_http.answers import Answer
from t5x_harness.google.storage_http.related import boundary_of
from t5x_harness.google.storage_http.request import StorageRequest

_MOST = 100


async def answer_batch(request: StorageRequest, call: Callable[[StorageRequest], Awaitable[Answer]]) -> Answer:
    """Answers the calls of a batch one after the other.

    Args:
      request: a request with a body of ``multipart/mixed``.
      call: the function that answers one call.

    Raises:
      Invalid: the body is not a batch, or has more than 100 calls.
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
