"""``multipart/related``: a resource as JSON and the media behind it, in one streaming body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Any

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage_http.request import StorageRequest, parse_json

_LONGEST_HEAD = 1 << 20


def boundary_of(content_type: str) -> bytes:
    """Returns the boundary in a content type; raises Invalid if there is none."""
    message = Message()
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
    """Reads the resource of a request.

    Returns:
      The resource, the content type of the media, and the media as they arrive.

    Raises:
      Invalid: the body is not a resource with media.
    """
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
