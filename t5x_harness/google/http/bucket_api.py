"""The JSON API of buckets."""

from __future__ import annotations

import asyncio

from t5x_harness.google.http.answers import Answer, json_answer
from t5x_harness.google.http.parameters import preconditions_of
from t5x_harness.google.http.request import Request
from t5x_harness.google.http.resources import bucket_resource
from t5x_harness.google.storage.errors import Invalid, StorageError
from t5x_harness.google.storage.store import ObjectStore

__all__ = ["answer_bucket", "answer_buckets"]

_OWN = {"kind", "id", "name", "selfLink", "projectNumber", "metageneration", "etag", "timeCreated", "updated"}
"""Fields that the service sets."""


async def answer_buckets(store: ObjectStore, request: Request) -> Answer:
    """``/storage/v1/b``: lists the buckets or makes one.

    Raises:
      StorageError: it cannot be done.
    """
    if request.method == "GET":
        found = await asyncio.to_thread(store.buckets, request.parameters.get("prefix", ""))
        items = [bucket_resource(bucket, request.origin) for bucket in found]
        return json_answer({"kind": "storage#buckets", **({"items": items} if items else {})})
    if request.method == "POST":
        resource = await request.json()
        name = resource.get("name")
        if not isinstance(name, str):
            raise Invalid("Required: name", reason="required")
        fields = {key: value for key, value in resource.items() if key not in _OWN and value is not None}
        return json_answer(bucket_resource(await asyncio.to_thread(store.create_bucket, name, fields), request.origin))
    raise not_allowed(request)


async def answer_bucket(store: ObjectStore, request: Request, name: str) -> Answer:
    """``/storage/v1/b/NAME``.

    Raises:
      StorageError: it cannot be done.
    """
    conditions = preconditions_of(request.parameters)
    if request.method == "GET":
        return json_answer(bucket_resource(await asyncio.to_thread(store.bucket, name, conditions), request.origin))
    if request.method in ("PATCH", "PUT"):
        resource = await request.json()
        changes = {key: value for key, value in resource.items() if key not in _OWN}
        if request.method == "PUT":  # what is not said is unset
            before = await asyncio.to_thread(store.bucket, name)
            changes = {**dict.fromkeys(before.fields), **changes}
        found = await asyncio.to_thread(store.patch_bucket, name, changes, conditions)
        return json_answer(bucket_resource(found, request.origin))
    if request.method == "DELETE":
        await asyncio.to_thread(store.delete_bucket, name, conditions)
        return Answer(204)
    raise not_allowed(request)


class NotAllowed(StorageError):
    """The method means nothing here."""

    status, reason = 405, "methodNotAllowed"


class NotEmulated(StorageError):
    """Google has this, and the harness does not."""

    status, reason = 501, "notImplemented"


def not_allowed(request: Request) -> StorageError:
    """What to raise for a method that means nothing here."""
    return NotAllowed(f"{request.method} is not allowed for /{'/'.join(request.segments)}")


def not_emulated(what: str) -> StorageError:
    """What to raise for a part of Google's API that is not emulated."""
    return NotEmulated(
        f"t5x-harness does not emulate {what}; buckets, objects, listings, uploads, compose, copy and rewrite are"
    )
