"""``rewriteTo``: a copy that takes several calls, each of which reports the progress."""

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
class Copy:
    """A copy of an object that is to be made.

    Attributes:
      source: the object, in the requested generation.
      bucket: the bucket of the copy.
      name: the name of the copy.
      fields: the fields of the copy; None for those of the source.
      preconditions: conditions on the object that the copy replaces.
    """

    source: SourceObject
    bucket: str
    name: str
    fields: ObjectFields | None
    preconditions: Preconditions

    def run(self, store: ObjectStore) -> StoredObject:
        """Makes the copy."""
        return store.copy(self.source, self.bucket, self.name, self.fields, self.preconditions)


async def answer_rewrite(store: ObjectStore, request: StorageRequest, copy: Copy) -> Answer:
    """Begins or continues a rewrite.

    As with Google, ``maxBytesRewrittenPerCall`` matters only if the copy gets another location or storage class;
    otherwise one call copies everything. All bytes are copied in the last call. The token, the only state of a rewrite,
    holds the number of bytes that the calls so far have reported.
    """
    found = await asyncio.to_thread(_source, store, copy.source)
    most = number_of(request.parameters, "maxBytesRewrittenPerCall")
    if most is not None and (most < _UNIT or most % _UNIT):
        raise Invalid(f"maxBytesRewrittenPerCall has to be a multiple of {_UNIT}, not {most}")
    same = {"from": [found.bucket, found.name, found.generation], "to": [copy.bucket, copy.name], "most": most}
    done = _done_before(request.parameters.get("rewriteToken"), same)
    if most is not None and done + most < found.size and await asyncio.to_thread(_moves, store, found, copy):
        state = {"done": False, "rewriteToken": _token(same, done + most)}
        return _answer(done + most, found.size, state)
    source = dataclasses.replace(copy.source, generation=found.generation)
    written = await asyncio.to_thread(dataclasses.replace(copy, source=source).run, store)
    return _answer(written.size, written.size, {"done": True, "resource": object_resource(written, request.origin)})


def _source(store: ObjectStore, source: SourceObject) -> StoredObject:
    return store.stat(source.bucket, source.name, generation=source.generation, preconditions=source.preconditions)


def _moves(store: ObjectStore, found: StoredObject, copy: Copy) -> bool:
    """Tells whether bytes have to be moved to another location or another storage class."""
    before, after = (bucket_resource(store.bucket(name), "") for name in (found.bucket, copy.bucket))
    fields = copy.fields or found.fields
    classes = found.fields.storage_class or before["storageClass"], fields.storage_class or after["storageClass"]
    return str(before["location"]).upper() != str(after["location"]).upper() or classes[0] != classes[1]


def _answer(rewritten: int, size: int, state: Mapping[str, Any]) -> Answer:
    sizes = {"totalBytesRewritten": str(rewritten), "objectSize": str(size)}
    return json_answer({"kind": "storage#rewriteResponse", **sizes, **state})


def _token(same: Mapping[str, Any], done: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({**same, "done": done}).encode()).decode()


def _done_before(token: str | None, same: Mapping[str, Any]) -> int:
    """Returns how many bytes earlier calls have rewritten; raises Invalid if the token is of another rewrite."""
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
