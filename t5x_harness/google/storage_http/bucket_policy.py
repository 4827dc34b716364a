"""A bucket's IAM policy: kept and told, as set-up code of users reads and writes it. Nobody is held to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.server.folder import PROJECT
from t5x_harness.google.storage.errors import Invalid, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ANY, Bucket, Preconditions
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.bucket_api import not_allowed
from t5x_harness.google.storage_http.request import Request
from t5x_harness.google.storage_http.resources import POLICY, etag_of

__all__ = ["answer_policy"]

_FIRST: Mapping[str, Any] = {
    "version": 1,
    "bindings": [
        {"role": "roles/storage.legacyBucketOwner", "members": [f"projectEditor:{PROJECT}", f"projectOwner:{PROJECT}"]},
        {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{PROJECT}"]},
    ],
}
"""Of a new bucket."""


async def answer_policy(store: ObjectStore, request: Request, name: str) -> Answer:
    """``/storage/v1/b/NAME/iam``.

    Raises:
      StorageError: there is no such bucket, or the policy is none or was made from another.
    """
    bucket = await asyncio.to_thread(store.bucket, name)
    if request.method == "PUT":
        policy = _read(await request.json())
        as_read = ANY
        if "etag" in policy:
            bucket = await asyncio.to_thread(store.bucket, name)
            if policy["etag"] != etag_of(bucket):
                raise PreconditionFailed("The policy was changed since it was read: its etag is another.")
            as_read = Preconditions(metageneration_match=bucket.metageneration)
        kept = {"version": policy.get("version", 1), "bindings": policy.get("bindings", [])}
        bucket = await asyncio.to_thread(store.patch_bucket, name, {POLICY: kept}, as_read)
    elif request.method != "GET":
        raise not_allowed(request)
    return json_answer(_resource(bucket))


def _read(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    bindings = policy.get("bindings", [])
    if not isinstance(bindings, list) or not all(isinstance(b, dict) and "role" in b for b in bindings):
        raise Invalid("bindings has to be a list of roles with their members")
    return policy


def _resource(bucket: Bucket) -> dict[str, Any]:
    kept: Any = bucket.fields.get(POLICY, _FIRST)
    return {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{bucket.name}",
        "etag": etag_of(bucket),
        **kept,
    }
