"""The JSON API of buckets and objects: resources, listings, policies, media, compose, copy, rewrite and move."""

import asyncio
import base64
import binascii
import collections
import dataclasses
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from t5x_harness.google.asgi import NOT_EMULATED
from t5x_harness.google.identity import PROJECT, project_number
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, PreconditionFailed, StoreError
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import ANY, ObjectFields, Preconditions, SourceObject, StoredObject
from t5x_harness.google.storage_http.answers import Answer, json_answer
from t5x_harness.google.storage_http.calls import check_read, inline_or_in_thread, open_checked
from t5x_harness.google.storage_http.request import StorageRequest, parse_json
from t5x_harness.google.storage_http.resources import (
    FIELDS,
    POLICY,
    PROJECT_FIELD,
    bucket_resource,
    etag_of,
    fields_of,
    listing_of,
    number_of,
    object_resource,
    preconditions_of,
)

_FIRST: Mapping[str, Any] = {
    "version": 1,
    "bindings": [
        {"role": "roles/storage.legacyBucketOwner", "members": [f"projectEditor:{PROJECT}", f"projectOwner:{PROJECT}"]},
        {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{PROJECT}"]},
    ],
}
"""The policy of a new bucket."""


async def answer_permissions(store: ObjectStore, request: StorageRequest, name: str) -> Answer:
    """Answers ``/storage/v1/b/NAME/iam/testPermissions``: everyone has all, because policies are not enforced."""
    await asyncio.to_thread(store.bucket, name)
    permissions = [value for key, value in parse_qsl(request.query) if key == "permissions"]
    return json_answer({"kind": "storage#testIamPermissionsResponse", "permissions": permissions})


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


async def lock_retention(store: ObjectStore, request: StorageRequest, name: str) -> Answer:
    """Answers ``/storage/v1/b/NAME/lockRetentionPolicy``; raises Invalid if there is no policy to lock."""
    if request.method != "POST":
        raise NotAllowed(request)
    conditions = preconditions_of(request.parameters)
    if conditions.metageneration_match is None:
        raise Invalid("Required parameter: ifMetagenerationMatch", reason="required")
    bucket = await asyncio.to_thread(store.bucket, name, conditions)
    if not bucket.fields.get("retentionPolicy"):
        raise Invalid(f"The bucket {name} has no retention policy to lock")
    locked = {"retentionPolicy": {"isLocked": True}}
    return json_answer(
        bucket_resource(await asyncio.to_thread(store.patch_bucket, name, locked, conditions), request.origin)
    )


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
        fields = {key: value for key, value in _checked(resource).items() if value is not None}
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
        changes = _checked(resource)
        if request.method == "PUT":  # missing fields are unset
            before = await asyncio.to_thread(store.bucket, name)
            changes = {**dict.fromkeys(before.fields.keys() - {POLICY, PROJECT_FIELD}), **changes}
        found = await asyncio.to_thread(store.patch_bucket, name, changes, conditions)
        return json_answer(bucket_resource(found, request.origin))
    if request.method == "DELETE":
        await asyncio.to_thread(store.delete_bucket, name, conditions)
        return Answer(204)
    raise NotAllowed(request)


_FIELDS: Mapping[type, Sequence[str]] = {
    str: ("location", "rpo", "storageClass"),
    bool: ("defaultEventBasedHold",),
    list: ("cors",),
    dict: (
        *("autoclass", "billing", "customPlacementConfig", "encryption", "hierarchicalNamespace", "iamConfiguration"),
        *("ipFilter", "labels", "lifecycle", "logging", "objectRetention", "retentionPolicy", "softDeletePolicy"),
        *("versioning", "website"),
    ),
}
"""The fields of a bucket that clients set, by their types."""

_KINDS = {str: "text", bool: "true or false", list: "a list", dict: "an object"}


def _checked(resource: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a bucket's resource that a client sets; raises Invalid if one has another type.

    Raises NotEmulated for a hierarchical namespace, which renames folders atomically.
    """
    match resource.get("hierarchicalNamespace"):
        case {"enabled": enabled} if enabled:
            raise NotEmulated("buckets with a hierarchical namespace")
    for kind, names in _FIELDS.items():
        for name in names:
            if resource.get(name) is not None and not isinstance(resource[name], kind):
                raise Invalid(f"{name} has to be {_KINDS[kind]}, not {json.dumps(resource[name])[:80]}")
    labels = resource.get("labels")
    if labels is not None and not (
        isinstance(labels, dict) and all(isinstance(value, str | None) for value in labels.values())
    ):
        raise Invalid("labels has to be an object of texts")
    return {name: resource[name] for names in _FIELDS.values() for name in names if name in resource}


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


_Target = tuple[str, str, ObjectFields | None, Preconditions]
"""Bucket, name and fields of a copy (None for those of its source), and conditions on the object that it replaces."""

_UNIT = 1 << 20
_NOT_EMULATED = {"iam": "IAM policies", "restore": "soft-deleted objects"}


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
