"""``rewriteTo``: a copy that takes several calls, each of which says how far it is."""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject, StoredObject
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.parameters import number_of
from t5x_harness.google.storage_http.request import StorageRequest, parse_json
from t5x_harness.google.storage_http.resources import bucket_resource, object_resource

_UNIT = 1 << 20


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """What is to be copied to where.

    Attributes:
      source: the object, in the generation that is asked for.
      fields: of the copy; None takes those of the source.
    """

    source: SourceObject
    bucket: str
    name: str
    fields: ObjectFields | None
    preconditions: Preconditions


async def answer_rewrite(store: ObjectStore, request: StorageRequest, rewrite: Rewrite) -> Answer:
    """Goes on with a rewrite, or begins it.

    As with Google, ``maxBytesRewrittenPerCall`` counts only where the copy's bucket has another location or the copy
    another storage class; else one call does it all. The bytes are copied in the last call: the token, which is all
    that is kept of a rewrite, says how many calls are left.
    """
    found = await asyncio.to_thread(_source, store, rewrite.source)
    most = number_of(request.parameters, "maxBytesRewrittenPerCall")
    if most is not None and (most < _UNIT or most % _UNIT):
        raise Invalid(f"maxBytesRewrittenPerCall has to be a multiple of {_UNIT}, not {most}")
    same = {"from": [found.bucket, found.name, found.generation], "to": [rewrite.bucket, rewrite.name], "most": most}
    done = _done_before(request.parameters.get("rewriteToken"), same)
    if most is not None and done + most < found.size and await asyncio.to_thread(_moves, store, found, rewrite):
        state = {"done": False, "rewriteToken": _token(same, done + most)}
        return _answer(done + most, found.size, state)
    source = dataclasses.replace(rewrite.source, generation=found.generation)
    target = (rewrite.bucket, rewrite.name, rewrite.fields, rewrite.preconditions)
    written = await asyncio.to_thread(store.copy, source, *target)
    return _answer(written.size, written.size, {"done": True, "resource": object_resource(written, request.origin)})


def _source(store: ObjectStore, source: SourceObject) -> StoredObject:
    return store.stat(source.bucket, source.name, generation=source.generation, preconditions=source.preconditions)


def _moves(store: ObjectStore, found: StoredObject, rewrite: Rewrite) -> bool:
    """Returns whether bytes have to be moved: to another location, or to another storage class."""
    before, after = (bucket_resource(store.bucket(name), "") for name in (found.bucket, rewrite.bucket))
    fields = rewrite.fields or found.fields
    classes = found.fields.storage_class or before["storageClass"], fields.storage_class or after["storageClass"]
    return str(before["location"]).upper() != str(after["location"]).upper() or classes[0] != classes[1]


def _answer(rewritten: int, size: int, state: Mapping[str, Any]) -> Answer:
    sizes = {"totalBytesRewritten": str(rewritten), "objectSize": str(size)}
    return json_answer({"kind": "storage#rewriteResponse", **sizes, **state})


def _token(same: Mapping[str, Any], done: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({**same, "done": done}).encode()).decode()


def _done_before(token: str | None, same: Mapping[str, Any]) -> int:
    """Returns how many bytes the calls before have rewritten; raises Invalid if the token is of another rewrite."""
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
