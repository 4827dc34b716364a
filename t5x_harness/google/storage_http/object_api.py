"""The JSON API of objects: resources, listings, media, compose, copy, rewrite and move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Preconditions, SourceObject
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.bucket_api import not_allowed, not_emulated
from t5x_harness.google.storage_http.conditions import check_read, open_checked
from t5x_harness.google.storage_http.parameters import (
    cleared_by,
    every_field,
    fields_of,
    listing_of,
    number_of,
    preconditions_of,
)
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import object_resource
from t5x_harness.google.storage_http.rewriting import Copy, answer_rewrite
from t5x_harness.google.storage_http.threads import inline_or_in_thread

_NOT_EMULATED = {
    "acl": "access control lists",
    "iam": "IAM policies",
    "restore": "soft-deleted objects",
}


async def answer_listing(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    """Answers ``/storage/v1/b/BUCKET/o``."""
    if request.method != "GET":
        raise not_allowed(request)
    page = await asyncio.to_thread(store.list, bucket, listing_of(request.parameters))
    body: dict[str, Any] = {"kind": "storage#objects"}
    if page.next_page:
        body["nextPageToken"] = page.next_page
    if page.prefixes:
        body["prefixes"] = list(page.prefixes)
    if page.objects:
        body["items"] = [object_resource(found, request.origin) for found in page.objects]
    return json_answer(body)


async def answer_object(
    store: ObjectStore, request: StorageRequest, bucket: str, rest: Sequence[str]
) -> Answer | ObjectReader:
    """Answers ``/storage/v1/b/BUCKET/o/NAME`` and the actions below it.

    Returns:
      The answer, or a reader of the requested media.
    """
    name, *action = rest
    match action:
        case ["compose"] | ["copyTo" | "rewriteTo", "b", _, "o", _] | ["moveTo", "o", _] if request.method != "POST":
            raise not_allowed(request)
        case ["compose"]:
            return await _compose(store, request, bucket, name)
        case ["copyTo" | "rewriteTo" as how, "b", to_bucket, "o", to_name]:
            source, target = _source_of(request, bucket, name), (to_bucket, to_name)
            return await _copy(store, request, source, target, by_rewrite=how == "rewriteTo")
        case ["moveTo", "o", to_name]:
            source, conditions = _source_of(request, bucket, name), preconditions_of(request.parameters)
            moved = await asyncio.to_thread(store.move, source, to_name, conditions)
            return json_answer(object_resource(moved, request.origin))
        case [what, *_] if what in _NOT_EMULATED:
            raise not_emulated(_NOT_EMULATED[what])
        case _:  # the name alone, from clients that do not encode its slashes, too
            return await _plain(store, request, bucket, "/".join(rest))


async def _plain(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer | ObjectReader:
    if request.method == "GET" and request.parameters.get("alt") == "media":
        return await inline_or_in_thread(_open, store, request, bucket, name)
    conditions, generation = preconditions_of(request.parameters), number_of(request.parameters, "generation")
    if request.method == "GET":
        found = await inline_or_in_thread(store.stat, bucket, name, generation=generation, preconditions=conditions)
        check_read(found, request.headers)
        return json_answer(object_resource(found, request.origin))
    if request.method == "DELETE":
        await asyncio.to_thread(store.delete, bucket, name, generation=generation, preconditions=conditions)
        return Answer(204)
    if request.method in ("PATCH", "PUT"):
        resource = await request.json()
        clear = every_field() if request.method == "PUT" else cleared_by(resource)
        found = await asyncio.to_thread(
            store.patch,
            bucket,
            name,
            fields_of(resource),
            clear=clear,
            generation=generation,
            preconditions=conditions,
        )
        return json_answer(object_resource(found, request.origin))
    raise not_allowed(request)


def _open(store: ObjectStore, request: StorageRequest, bucket: str, name: str, *, wait: bool = True) -> ObjectReader:
    conditions, generation = preconditions_of(request.parameters), number_of(request.parameters, "generation")
    return open_checked(store, SourceObject(bucket, name, generation, conditions), request.headers, wait=wait)


async def _compose(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    resource = await request.json()
    given = resource.get("sourceObjects") or []
    if not isinstance(given, list):
        raise Invalid("sourceObjects has to be a list")
    sources = [_source(bucket, each) for each in given]
    fields = fields_of(resource.get("destination") or {})
    conditions = preconditions_of(request.parameters)
    found = await asyncio.to_thread(store.compose, bucket, name, sources, fields, conditions)
    return json_answer(object_resource(found, request.origin))


def _source(bucket: str, given: object) -> SourceObject:
    if not isinstance(given, dict) or not isinstance(name := given.get("name"), str):
        raise Invalid("Each of sourceObjects needs a name", reason="required")
    generation = given.get("generation")
    conditions = given.get("objectPreconditions") or {}
    if not isinstance(conditions, dict):
        raise Invalid(f"objectPreconditions of the source object {name} has to be an object")
    wanted = conditions.get("ifGenerationMatch")
    try:
        return SourceObject(
            bucket,
            name,
            int(generation) if generation is not None else None,
            Preconditions(generation_match=int(wanted)) if wanted is not None else Preconditions(),
        )
    except (TypeError, ValueError):
        raise Invalid(f"The generation of the source object {name} is not a number") from None


def _source_of(request: StorageRequest, bucket: str, name: str) -> SourceObject:
    """Returns the source that the parameters of a copy or a move name."""
    conditions = preconditions_of(request.parameters, source=True)
    return SourceObject(bucket, name, number_of(request.parameters, "sourceGeneration"), conditions)


async def _copy(
    store: ObjectStore, request: StorageRequest, source: SourceObject, target: tuple[str, str], *, by_rewrite: bool
) -> Answer:
    resource = await request.json()
    fields = fields_of(resource) if resource else None
    copy = Copy(source, *target, fields, preconditions_of(request.parameters))
    if by_rewrite:
        return await answer_rewrite(store, request, copy)
    written = await asyncio.to_thread(copy.run, store)
    return json_answer(object_resource(written, request.origin))
