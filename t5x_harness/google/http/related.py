"""``multipart/related``: a resource as JSON and the media after it, in one body that streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Any

from t5x_harness.google.http.request import Request, parse_json
from t5x_harness.google.storage.errors import Invalid

__all__ = ["boundary_of", "read_related"]

_LONGEST_HEAD = 1 << 20


def boundary_of(content_type: str) -> bytes:
    """The boundary that a content type names.

    Raises:
      Invalid: it names none.
    """
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if not boundary:
        raise Invalid("A multipart body needs a boundary in its content type")
    return boundary.encode("latin-1")


async def read_related(request: Request) -> tuple[dict[str, Any], str | None, AsyncIterator[bytes]]:
    """Reads the resource, and gives the media as they arrive.

    Returns:
      The resource, the content type of the media, and their bytes.

    Raises:
      Invalid: it is no such body.
    """
    delimiter = b"\r\n--" + boundary_of(request.headers.get("content-type", ""))
    chunks = request.chunks()
    held = bytearray(b"\r\n")  # so that the first delimiter looks like the others
    async for chunk in chunks:
        held += chunk
        if (parts := _heads(held, delimiter)) is not None:
            resource, content_type, media_at = parts
            return resource, content_type, _media(bytes(held[media_at:]), chunks, delimiter)
        if len(held) > _LONGEST_HEAD + (1 << 20):
            break
    raise Invalid("Multipart must have two parts: the resource and the media")


def _heads(held: bytearray, delimiter: bytes) -> tuple[dict[str, Any], str | None, int] | None:
    """Resource, content type of the media, and where these begin; None while they are not there."""
    first = held.find(delimiter)
    json_at = held.find(b"\r\n\r\n", first) if first >= 0 else -1
    second = held.find(delimiter, json_at) if json_at >= 0 else -1
    media_at = held.find(b"\r\n\r\n", second + len(delimiter)) if second >= 0 else -1
    if media_at < 0:
        return None
    head = bytes(held[second + len(delimiter) : media_at]).lstrip(b"\r\n")
    headers = BytesHeaderParser().parsebytes(head)
    return parse_json(bytes(held[json_at + 4 : second])), headers["content-type"], media_at + 4


async def _media(held: bytes, chunks: AsyncIterator[bytes], delimiter: bytes) -> AsyncIterator[bytes]:
    """The bytes up to the last delimiter, which may be cut anywhere between two chunks."""
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
