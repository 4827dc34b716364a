"""Calls of the store from the event loop, in the loop's own thread if nothing has to be waited for.

A hop to another thread and back costs more than the store needs to write or find a small object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from t5x_harness.google.storage.errors import WouldWait
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, StoredObject

Result = TypeVar("Result")

_SMALL = 1 << 16  # bytes, whose checksums and writing take less than a hop


async def inline_or_in_thread(call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Makes a call with ``wait=False`` here, or otherwise in a thread, where it may wait."""
    try:
        return call(*arguments, **named, wait=False)
    except WouldWait:
        return await asyncio.to_thread(call, *arguments, **named)


async def write_object(
    store: ObjectStore,
    bucket: str,
    name: str,
    fields: ObjectFields,
    preconditions: Preconditions,
    media: AsyncIterator[bytes],
    expected: Checksums,
) -> StoredObject:
    """Writes an object as its bytes arrive, or a small one at once; raises StoreError if it cannot."""
    first = await anext(media, b"")
    if len(first) <= _SMALL:
        second = await anext(media, None)
        if second is None:
            return await inline_or_in_thread(store.write, bucket, name, first, fields, preconditions, expected)
        first += second
    writer = await asyncio.to_thread(store.open_write, bucket, name, fields, preconditions)
    try:
        await asyncio.to_thread(writer.write, first)
        async for chunk in media:
            await asyncio.to_thread(writer.write, chunk)
    except BaseException:
        writer.abort()
        raise
    return await asyncio.to_thread(writer.commit, expected)
