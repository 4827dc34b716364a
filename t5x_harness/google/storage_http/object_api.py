"""The JSON API of objects: resources, listings, media, compose, copy, rewrite and move."""

import asyncio
import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject, StoredObject
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.bucket_api import NotAllowed, NotEmulated
from t5x_harness.google.storage_http.calls import check_read, inline_or_in_thread, open_checked
from t5x_harness.google.storage_http.request import StorageRequest, parse_json
from t5x_harness.google.storage_http.resources import (
    FIELDS,
    bucket_resource,
    fields_of,
    listing_of,
    number_of,
    object_resource,
    preconditions_of,
)

_Target = tuple[str, str, ObjectFields | None, Preconditions]
"""Bucket, name and fields of a copy (None for those of its source), and conditions on the object that it replaces."""

_UNIT = 1 << 20
_NOT_EMULATED = {"acl": "access control lists", "iam": "IAM policies", "restore": "soft-deleted objects"}


async def answer_listing(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    """Answers ``/storage/v1/b/BUCKET/o``."""
    if request.method != "GET":
        raise NotAllowed(request)
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
    """Answers ``/storage/v1/b/BUCKET/o/NAME`` and the actions below it, or returns a reader of the requested media."""
    name, *action = rest
    match action:
        case ["compose"] | ["copyTo" | "rewriteTo", "b", _, "o", _] | ["moveTo", "o", _] if request.method != "POST":
            raise NotAllowed(request)
        case ["compose"]:
            return await _compose(store, request, bucket, name)
        case ["copyTo" | "rewriteTo" as how, "b", to_bucket, "o", to_name]:
            source, resource = SourceObject(bucket, name, _conditions(request, source=True)), await request.json()
            fields = fields_of(resource) if resource else None
            target = to_bucket, to_name, fields, preconditions_of(request.parameters)
            if how == "rewriteTo":
                return await _rewrite(store, request, source, target)
            written = await asyncio.to_thread(store.copy, source, *target)
            return json_answer(object_resource(written, request.origin))
        case ["moveTo", "o", to_name]:
            source = SourceObject(bucket, name, _conditions(request, source=True))
            moved = await asyncio.to_thread(store.move, source, to_name, preconditions_of(request.parameters))
            return json_answer(object_resource(moved, request.origin))
        case [what, *_] if what in _NOT_EMULATED:
            raise NotEmulated(_NOT_EMULATED[what])
        case _:  # only a name, whose slashes some clients do not encode
            return await _plain(store, request, bucket, "/".join(rest))


async def _plain(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer | ObjectReader:
    conditions = _conditions(request)
    if request.method == "GET" and request.parameters.get("alt") == "media":
        return await inline_or_in_thread(open_checked, store, bucket, name, conditions, request.headers)
    if request.method == "DELETE":
        await asyncio.to_thread(store.delete, bucket, name, conditions)
        return Answer(204)
    if request.method == "GET":
        found = await inline_or_in_thread(store.stat, bucket, name, conditions)
        check_read(found, request.headers)
    elif request.method in ("PATCH", "PUT"):
        resource = await request.json()
        nulls = [ours for theirs, ours in FIELDS.items() if theirs in resource and resource[theirs] is None]
        clear = FIELDS.values() if request.method == "PUT" else nulls
        found = await asyncio.to_thread(store.patch, bucket, name, fields_of(resource), conditions, clear=clear)
    else:
        raise NotAllowed(request)
    return json_answer(object_resource(found, request.origin))


def _conditions(request: StorageRequest, *, source: bool = False) -> Preconditions:
    """Returns the conditions on an object that a request reads or changes, with the generation that it names."""
    generation = number_of(request.parameters, "sourceGeneration" if source else "generation")
    return dataclasses.replace(preconditions_of(request.parameters, source), generation=generation)


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
    conditions = given.get("objectPreconditions") or {}
    if not isinstance(conditions, dict):
        raise Invalid(f"objectPreconditions of the source object {name} has to be an object")
    numbers = given.get("generation"), conditions.get("ifGenerationMatch")
    try:
        generation, wanted = (int(number) if number is not None else None for number in numbers)
    except (TypeError, ValueError):
        raise Invalid(f"The generation of the source object {name} is not a number") from None
    return SourceObject(bucket, name, Preconditions(wanted, generation=generation))


async def _rewrite(store: ObjectStore, request: StorageRequest, source: SourceObject, target: _Target) -> Answer:
    """Begins or continues a copy that takes several calls, each of which reports the progress.

    As with Google, ``maxBytesRewrittenPerCall`` matters only if the copy gets another location or storage class;
    otherwise one call copies everything. All bytes are copied in the last call. The token, the only state of a rewrite,
    holds the number of bytes that the calls so far have reported.
    """
    bucket, name, fields, _ = target
    found = await asyncio.to_thread(store.stat, source.bucket, source.name, source.preconditions)
    most = number_of(request.parameters, "maxBytesRewrittenPerCall")
    if most is not None and (most < _UNIT or most % _UNIT):
        raise Invalid(f"maxBytesRewrittenPerCall has to be a multiple of {_UNIT}, not {most}")
    same = {"from": [found.bucket, found.name, found.generation], "to": [bucket, name], "most": most}
    done = _done_before(request.parameters.get("rewriteToken"), same)
    kept = fields or found.fields
    if most is not None and done + most < found.size and await asyncio.to_thread(_moves, store, found, bucket, kept):
        done, size = done + most, found.size
        token = base64.urlsafe_b64encode(json.dumps({**same, "done": done}).encode()).decode()
        state: dict[str, Any] = {"done": False, "rewriteToken": token}
    else:
        conditions = dataclasses.replace(source.preconditions, generation=found.generation)
        written = await asyncio.to_thread(store.copy, source._replace(preconditions=conditions), *target)
        done = size = written.size
        state = {"done": True, "resource": object_resource(written, request.origin)}
    sizes = {"totalBytesRewritten": str(done), "objectSize": str(size)}
    return json_answer({"kind": "storage#rewriteResponse", **sizes, **state})


def _moves(store: ObjectStore, found: StoredObject, bucket: str, fields: ObjectFields) -> bool:
    """Tells whether bytes have to be moved to another location or another storage class."""
    before, after = (bucket_resource(store.bucket(name), "") for name in (found.bucket, bucket))
    classes = found.fields.storage_class or before["storageClass"], fields.storage_class or after["storageClass"]
    return str(before["location"]).upper() != str(after["location"]).upper() or classes[0] != classes[1]


def _done_before(token: str | None, same: Mapping[str, Any]) -> int:
    """Returns how many bytes earlier calls have rewritten; raises Invalid if the token belongs to another rewrite."""
    if token is None:
        return 0
    try:
        state: Any = parse_json(base64.b64decode(token, altchars=b"-_", validate=True))
        done = state.pop("done")
    except (binascii.Error, ValueError, Invalid, KeyError):
        state = done = None
    if state != same or not isinstance(done, int):
        raise Invalid("The rewrite token is not of this rewrite: source, destination and maxBytesRewrittenPerCall stay")
    return done
