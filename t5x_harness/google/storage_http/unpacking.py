"""Decompressive transcoding: objects kept as gzip, for clients that do not take gzip."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping

from t5x_harness.google.asgi import Send, raw_headers
from t5x_harness.google.storage.errors import Invalid, StorageError
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.values import StoredObject

__all__ = ["must_unpack", "send_unpacked"]

_PIECE = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


def must_unpack(found: StoredObject, asked: Mapping[str, str]) -> bool:
    """Whether an object is to be sent unpacked to who sent these headers."""
    fields = found.fields
    return (
        (fields.content_encoding or "").lower() == "gzip"
        and "gzip" not in asked.get("accept-encoding", "").lower()
        and "no-transform" not in (fields.cache_control or "").lower()
    )


async def send_unpacked(reader: ObjectReader, headers: Mapping[str, str], send: Send, *, head: bool = False) -> None:
    """Sends an object's unpacked bytes, whose number is not known before.

    Args:
      reader: of the object; left open.
      headers: of the object as it is kept.
      send: ASGI's.
      head: whether only the headers are asked for.

    Raises:
      Invalid: the object does not begin as gzip does; nothing is sent.
      ConnectionResetError: it goes on as something else; the answer breaks off.
    """
    size, at = reader.object.size, 0
    unpacker = zlib.decompressobj(_GZIP)
    packed = await asyncio.to_thread(reader.read, 0, min(size, _PIECE))
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
                packed = await asyncio.to_thread(reader.read, at, min(size, at + _PIECE))
                at += len(packed)
            piece = await asyncio.to_thread(unpacker.decompress, packed, _PIECE)
        except (zlib.error, StorageError) as error:  # which can be said in no other way any more
            raise ConnectionResetError(str(error)) from error
        packed = unpacker.unconsumed_tail
        if unpacker.eof:  # a gzip file may have several members, one after another
            packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP)
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
