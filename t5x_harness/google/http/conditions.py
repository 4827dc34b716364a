"""HTTP's own conditions: on entity tags, and on the time of the last change."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from t5x_harness.google.http.resources import etag_of
from t5x_harness.google.storage.errors import NotModified, PreconditionFailed, StorageError
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Preconditions, SourceObject, StoredObject

__all__ = ["check_read", "open_checked", "with_entity_tags"]

_NOBODYS = -1
"""A generation that no object has."""


def check_read(found: StoredObject, headers: Mapping[str, str]) -> None:
    """Checks ``If-Match``, ``If-None-Match``, ``If-Modified-Since`` and ``If-Unmodified-Since`` of a read.

    Raises:
      PreconditionFailed, NotModified: one does not hold.
    """
    tag, changed = etag_of(found), found.updated // 1_000_000
    if "if-match" in headers:
        if not {"*", tag} & _tags(headers["if-match"]):
            raise PreconditionFailed("At least one of the pre-conditions you specified did not hold.")
    elif (since := _moment(headers, "if-unmodified-since")) is not None and changed > since.timestamp():
        raise PreconditionFailed("At least one of the pre-conditions you specified did not hold.")
    if "if-none-match" in headers:
        if {"*", tag} & _tags(headers["if-none-match"]):
            raise NotModified("Not Modified")
    elif (since := _moment(headers, "if-modified-since")) is not None and changed <= since.timestamp():
        raise NotModified("Not Modified")


def open_checked(
    store: ObjectStore, source: SourceObject, headers: Mapping[str, str], *, wait: bool = True
) -> ObjectReader:
    """Opens an object for a request; close the reader.

    Raises:
      StorageError: as ``ObjectStore.open_read`` and :func:`check_read` do.
    """
    reader = store.open_read(
        source.bucket, source.name, generation=source.generation, preconditions=source.preconditions, wait=wait
    )
    try:
        check_read(reader.object, headers)
    except StorageError:
        reader.close()
        raise
    return reader


def with_entity_tags(given: Preconditions, headers: Mapping[str, str]) -> Preconditions:
    """The conditions of a write, with those on entity tags, which say generation and metageneration here."""
    if "if-match" in headers and "*" not in (tags := _tags(headers["if-match"])):
        generation, metageneration = _versions(tags)
        given = dataclasses.replace(given, generation_match=generation, metageneration_match=metageneration)
    if "if-none-match" in headers:
        tags = _tags(headers["if-none-match"])
        if "*" in tags:
            return dataclasses.replace(given, generation_match=0)
        return dataclasses.replace(given, generation_not_match=_versions(tags)[0])
    return given


def _tags(value: str) -> set[str]:
    return {tag.strip().removeprefix("W/").strip('"') for tag in value.split(",")}


def _versions(tags: set[str]) -> tuple[int, int]:
    """Generation and metageneration in the first tag that has them."""
    for tag in tags:
        with contextlib.suppress(binascii.Error, ValueError):
            generation, _, metageneration = base64.b64decode(tag, validate=True).decode().partition("/")
            return int(generation), int(metageneration)
    return _NOBODYS, _NOBODYS


def _moment(headers: Mapping[str, str], name: str) -> datetime | None:
    """A time in a header; None if it is not there, or makes no sense, as HTTP has it."""
    if name in headers:
        with contextlib.suppress(ValueError):
            return parsedate_to_datetime(headers[name])
    return None
