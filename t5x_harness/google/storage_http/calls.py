"""Calls of the store for requests: from the event loop, and under HTTP's own conditions."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from t5x_harness.google.storage.errors import NoSuchResource, NotModified, PreconditionFailed, StoreError, WouldWait
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import DOES_NOT_HOLD, Checksums, ObjectFields, Preconditions, StoredObject
from t5x_harness.google.storage_http.resources import etag_of, xml_etag_of

Result = TypeVar("Result")

_SMALL = 1 << 16  # bytes, which take less time to checksum and to write than a hop to a thread


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


def check_read(found: StoredObject, headers: Mapping[str, str], *, xml: bool = False) -> None:
    """Raises PreconditionFailed or NotModified if a header ``If-…`` of a read does not hold."""
    tag, changed = (xml_etag_of if xml else etag_of)(found), found.updated // 1_000_000
    if "if-match" in headers:
        if not {"*", tag} & _tags(headers["if-match"]):
            raise PreconditionFailed(f"{DOES_NOT_HOLD}.")
    elif (since := _moment(headers, "if-unmodified-since")) is not None and changed > since:
        raise PreconditionFailed(f"{DOES_NOT_HOLD}.")
    if "if-none-match" in headers:
        if {"*", tag} & _tags(headers["if-none-match"]):
            raise NotModified("Not Modified")
    elif (since := _moment(headers, "if-modified-since")) is not None and changed <= since:
        raise NotModified("Not Modified")


def open_checked(
    store: ObjectStore,
    bucket: str,
    name: str,
    preconditions: Preconditions,
    headers: Mapping[str, str],
    *,
    xml: bool = False,
    wait: bool = True,
) -> ObjectReader:
    """Opens an object for a request; raises the errors of ``ObjectStore.open_read`` and :func:`check_read`."""
    reader = store.open_read(bucket, name, preconditions, wait=wait)
    try:
        check_read(reader.object, headers, xml=xml)
    except StoreError:
        reader.close()
        raise
    return reader


async def with_entity_tags(
    store: ObjectStore, bucket: str, name: str, given: Preconditions, headers: Mapping[str, str]
) -> Preconditions:
    """Returns the conditions of a write by the XML API, with those on entity tags as conditions on generations.

    Raises:
      PreconditionFailed: the object has none of the required tags, or an excluded one.
      StoreError: the errors of ``ObjectStore.stat``, except the one for a missing object.
    """
    if headers.keys().isdisjoint(("if-match", "if-none-match")):
        return given
    try:
        found = await inline_or_in_thread(store.stat, bucket, name)
        generation, tag = found.generation, xml_etag_of(found)
    except NoSuchResource as error:
        if error.code != NoSuchResource.code:
            raise
        generation, tag = 0, ""
    if "if-match" in headers:
        if not tag or not {"*", tag} & _tags(headers["if-match"]):
            raise PreconditionFailed(f"{DOES_NOT_HOLD}.")
        return dataclasses.replace(given, generation_match=given.generation_match or generation)
    if tag and {"*", tag} & _tags(headers["if-none-match"]):
        raise PreconditionFailed(f"{DOES_NOT_HOLD}.")
    if "*" in _tags(headers["if-none-match"]):
        return dataclasses.replace(given, generation_match=0)
    return given


def _tags(value: str) -> set[str]:
    return {tag.strip().removeprefix("W/").strip('"') for tag in value.split(",")}


def _moment(headers: Mapping[str, str], name: str) -> float | None:
    """Returns the time in a header in seconds since 1970, or None if it is missing or, as HTTP requires, invalid."""
    if name in headers:
        with contextlib.suppress(ValueError, OverflowError):
            return parsedate_to_datetime(headers[name]).timestamp()
    return None
