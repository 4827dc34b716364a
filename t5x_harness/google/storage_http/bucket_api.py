"""The JSON API of buckets."""

import asyncio
import base64
import binascii
import collections
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_harness.google.asgi import NOT_EMULATED
from t5x_harness.google.identity import PROJECT, project_number
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, PreconditionFailed, StoreError
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ANY, Preconditions
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import (
    POLICY,
    PROJECT_FIELD,
    bucket_resource,
    etag_of,
    number_of,
    preconditions_of,
    text_of,
)

_FIRST: Mapping[str, Any] = {
    "version": 1,
    "bindings": [
        {"role": "roles/storage.legacyBucketOwner", "members": [f"projectEditor:{PROJECT}", f"projectOwner:{PROJECT}"]},
        {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{PROJECT}"]},
    ],
}
"""The policy of a new bucket."""


async def answer_policy(store: ObjectStore, request: StorageRequest, name: str) -> Answer:
    """Answers ``/storage/v1/b/NAME/iam``; raises StoreError for an invalid or outdated policy."""
    bucket = await asyncio.to_thread(store.bucket, name)
    if request.method == "PUT":
        policy = await request.json()
        bindings = policy.get("bindings", [])
        if not isinstance(bindings, list) or not all(isinstance(b, dict) and "role" in b for b in bindings):
            raise Invalid("bindings has to be a list of roles with their members")
        as_read = ANY
        if "etag" in policy:
            bucket = await asyncio.to_thread(store.bucket, name)
            if policy["etag"] != etag_of(bucket):
                raise PreconditionFailed("The policy was changed since it was read: its etag is another.")
            as_read = Preconditions(metageneration_match=bucket.metageneration)
        kept = {"version": policy.get("version", 1), "bindings": bindings}
        bucket = await asyncio.to_thread(store.patch_bucket, name, {POLICY: kept}, as_read)
    elif request.method != "GET":
        raise NotAllowed(request)
    shown: Any = bucket.fields.get(POLICY, _FIRST)
    identity = {"resourceId": f"projects/_/buckets/{bucket.name}", "etag": etag_of(bucket)}
    return json_answer({"kind": "storage#policy", **identity, **shown})


_TIMES = 3
"""One more than the number of requests from programs that only check whether a bucket exists."""


class MissingBuckets:
    """Counts the requests for each missing bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: collections.Counter[str] = collections.Counter()

    def note(self, bucket: str) -> None:
        """Counts a request, and reports the bucket on standard error if programs keep asking for it."""
        self._asked[bucket] += 1
        if self._asked[bucket] == _TIMES:
            command = f"mkdir {shlex.quote(str(self._folder / bucket))}"
            if shutil.which("gcloud"):
                command = f"gcloud storage buckets create gs://{shlex.quote(bucket)}"
            print(
                f"{PRODUCT}: there is no bucket {bucket!r}, which was asked for {_TIMES} times; some programs ask "
                f"again for ever. Make it: {command}, or have all buckets made: --create-buckets of "
                "exec and serve",
                file=sys.stderr,
                flush=True,
            )


_OWN = {"kind", "id", "name", "selfLink", PROJECT_FIELD, "metageneration", "etag", "timeCreated", "updated", POLICY}
"""The fields that the service sets."""

_MOST = 1000
"""The maximum number of buckets on a page."""


async def answer_buckets(store: ObjectStore, request: StorageRequest) -> Answer:
    """Answers ``/storage/v1/b``: lists the buckets or makes one."""
    if request.method == "GET":
        return await _list(store, request)
    if request.method == "POST":
        resource = await request.json()
        name = resource.get("name")
        if not isinstance(name, str):
            raise Invalid("Required: name", reason="required")
        fields = {key: value for key, value in _checked(resource).items() if key not in _OWN and value is not None}
        if project := request.parameters.get("project"):
            fields[PROJECT_FIELD] = project_number(project)
        return json_answer(bucket_resource(await asyncio.to_thread(store.create_bucket, name, fields), request.origin))
    raise NotAllowed(request)


async def answer_bucket(store: ObjectStore, request: StorageRequest, name: str) -> Answer:
    """Answers ``/storage/v1/b/NAME``."""
    conditions = preconditions_of(request.parameters)
    if request.method == "GET":
        return json_answer(bucket_resource(await asyncio.to_thread(store.bucket, name, conditions), request.origin))
    if request.method in ("PATCH", "PUT"):
        resource = await request.json()
        changes = {key: value for key, value in _checked(resource).items() if key not in _OWN}
        if request.method == "PUT":  # missing fields are unset
            before = await asyncio.to_thread(store.bucket, name)
            changes = {**dict.fromkeys(before.fields.keys() - {POLICY, PROJECT_FIELD}), **changes}
        found = await asyncio.to_thread(store.patch_bucket, name, changes, conditions)
        return json_answer(bucket_resource(found, request.origin))
    if request.method == "DELETE":
        await asyncio.to_thread(store.delete_bucket, name, conditions)
        return Answer(204)
    raise NotAllowed(request)


def _checked(resource: dict[str, Any]) -> dict[str, Any]:
    """Returns a bucket's resource; raises Invalid if a field that clients read has another type.

    Raises NotEmulated for a hierarchical namespace, which renames folders atomically.
    """
    match resource.get("hierarchicalNamespace"):
        case {"enabled": enabled} if enabled:
            raise NotEmulated("buckets with a hierarchical namespace")
    for name in ("location", "storageClass"):
        text_of(resource, name)
    labels = resource.get("labels")
    if labels is not None and not (
        isinstance(labels, dict) and all(isinstance(value, str | None) for value in labels.values())
    ):
        raise Invalid("labels has to be an object of texts")
    return resource


async def _list(store: ObjectStore, request: StorageRequest) -> Answer:
    most = number_of(request.parameters, "maxResults")
    if most is not None and most < 1:
        raise Invalid(f"Invalid value for maxResults: {most}: it must be at least 1")
    token = request.parameters.get("pageToken", "")
    try:
        after = base64.b64decode(token, altchars=b"-_", validate=True).decode()  # the last name of the previous page
    except (binascii.Error, ValueError):
        raise Invalid(f"Invalid page token: {token!r}") from None
    found = await asyncio.to_thread(store.buckets, request.parameters.get("prefix", ""))
    left = [bucket for bucket in found if bucket.name > after]
    page = left[: min(most or _MOST, _MOST)]
    body: dict[str, Any] = {"kind": "storage#buckets"}
    if len(left) > len(page):
        body["nextPageToken"] = base64.urlsafe_b64encode(page[-1].name.encode()).decode()
    if page:
        body["items"] = [bucket_resource(bucket, request.origin) for bucket in page]
    return json_answer(body)


class NotAllowed(StoreError):
    """The resource does not have this method."""

    status, reason, code = 405, "methodNotAllowed", "MethodNotAllowed"

    def __init__(self, request: StorageRequest) -> None:
        super().__init__(f"{request.method} is not allowed for /{'/'.join(request.segments)}")


class NotEmulated(StoreError):
    """Google has this, and the emulation does not."""

    status, reason, code = NOT_EMULATED, "notImplemented", "NotImplemented"

    def __init__(self, what: str) -> None:
        emulated = "buckets, objects, listings, uploads, compose, copy, rewrite and move are"
        super().__init__(f"{PRODUCT} does not emulate {what}; {emulated}")
