"""The application: it routes a request, or each call of a batch, to its API; errors also have that API's form."""

import asyncio
import dataclasses
import functools
import math
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from t5x_harness.google.asgi import Message, Receive, Scope, Send, StorageApp
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, NoSuchBucket, NotModified, PreconditionFailed, StoreError
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage_http.access_lists import AccessLists
from t5x_harness.google.storage_http.answers import Answer, error_json, error_xml, json_answer, send_media
from t5x_harness.google.storage_http.json_api import (
    MissingBuckets,
    NotEmulated,
    answer_bucket,
    answer_buckets,
    answer_listing,
    answer_object,
    answer_permissions,
    answer_policy,
    lock_retention,
)
from t5x_harness.google.storage_http.notifications import NotificationConfigs
from t5x_harness.google.storage_http.project_api import HmacKeys, answer_service_account
from t5x_harness.google.storage_http.request import Body, StorageRequest, boundary_of, is_json_api
from t5x_harness.google.storage_http.resources import bucket_resource, object_resource
from t5x_harness.google.storage_http.retry_tests import RetryTesting
from t5x_harness.google.storage_http.upload_api import answer_upload
from t5x_harness.google.storage_http.xml_api import answer_xml, headers_of_answer

_TELL_SECONDS = 60
_MOST = 100  # calls in a batch
_OF_BUCKETS = {
    "iam": "IAM policies",
    "anywhereCaches": "caches",
    "folders": "folders of hierarchical namespaces",
    "managedFolders": "managed folders",
}


def make_app(root: Path, *, create_buckets: bool = False) -> StorageApp:
    """Returns Cloud Storage over a folder; raises StoreError or CannotOpen if the folder is not available."""
    store = ObjectStore(root, create_buckets=create_buckets)
    return RetryTesting(_App(store, MissingBuckets(root / "buckets")))


_Answering = Callable[[StorageRequest], Awaitable[Answer | ObjectReader]]


class _Extras(NamedTuple):
    """What is kept beside the store, in memory."""

    access: AccessLists
    notifications: NotificationConfigs
    hmac_keys: HmacKeys


class _App:
    def __init__(self, store: ObjectStore, missing: MissingBuckets) -> None:
        self._store = store
        self._extras = _Extras(AccessLists(), NotificationConfigs(), HmacKeys())
        self._missing = missing
        self._reported = -math.inf  # when an error of the disk was last reported
        self.close = store.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        json = is_json_api(scope)
        head = scope["method"] == "HEAD"
        body = Body(receive)
        try:
            request = StorageRequest.of(scope, body.receive)
            answered = await (_json(self._store, self._extras, request) if json else answer_xml(self._store, request))
            if isinstance(answered, ObjectReader):
                headers = {} if json else headers_of_answer(request)
                await send_media(answered, request.headers, send, headers, head=head, xml=not json)
                return
        except ConnectionError:  # the client's connection
            raise
        except (StoreError, OSError, sqlite3.Error) as error:
            refused = _as_answered(error, scope["method"]) if isinstance(error, StoreError) else self._disk(error)
            if isinstance(error, NoSuchBucket):
                self._missing.note(error.bucket)
            answered = error_json(refused) if json else error_xml(refused)
        await body.drop()
        await answered.send(send, head=head)

    def _disk(self, error: OSError | sqlite3.Error) -> StoreError:
        """Returns the answer to an error of the disk; from time to time, also reports the error on standard error."""
        refused = self._store.refusal(error)
        if time.monotonic() - self._reported > _TELL_SECONDS:
            self._reported = time.monotonic()
            print(f"{PRODUCT}: {refused.message}", file=sys.stderr, flush=True)
        return refused


def _as_answered(error: StoreError, method: str) -> StoreError:
    """Turns 304 for anything but a read into 412, because a write whose condition does not hold has failed."""
    if isinstance(error, NotModified) and method not in ("GET", "HEAD"):
        return PreconditionFailed(error.message)
    return error


async def _json(store: ObjectStore, extras: _Extras, request: StorageRequest) -> Answer | ObjectReader:
    """Routes a call of the JSON API."""
    segments = list(request.segments)
    if segments[0] == "batch":
        return await _answer_batch(store, extras, request)
    if segments[0] == "resumable":
        segments.pop(0)
    kind = segments.pop(0) if segments[0] in ("upload", "download") else ""
    match segments[2:]:
        case ["b"]:
            if request.method == "POST":
                return await extras.access.around(request, None, functools.partial(answer_buckets, store))
            return await answer_buckets(store, request)
        case ["b", bucket, "o"] if kind == "upload":
            return await answer_upload(store, request, bucket)
        case ["b", bucket]:
            answer: _Answering = functools.partial(answer_bucket, store, name=bucket)
            return await _with_lists(store, extras, request, bucket, answer)
        case ["b", bucket, "acl" | "defaultObjectAcl" as name, *entity] if len(entity) <= 1:
            found = await asyncio.to_thread(store.bucket, bucket)
            return await extras.access.answer(request, found, bucket_resource(found, request.origin), name, *entity)
        case ["b", bucket, "o", name, "acl", *entity] if len(entity) <= 1:
            found = await asyncio.to_thread(store.bucket, bucket)
            resource = object_resource(await asyncio.to_thread(store.stat, bucket, name), request.origin)
            return await extras.access.answer(request, found, resource, "acl", *entity)
        case ["b", bucket, "o"]:
            return await answer_listing(store, request, bucket)
        case ["b", bucket, "o", *rest] if any(rest):
            answer = functools.partial(answer_object, store, bucket=bucket, rest=rest)
            return await _with_lists(store, extras, request, bucket, answer)
        case ["b", bucket, "iam"]:
            return await answer_policy(store, request, bucket)
        case ["b", bucket, "iam", "testPermissions"]:
            return await answer_permissions(store, request, bucket)
        case ["b", bucket, "lockRetentionPolicy"]:
            return await lock_retention(store, request, bucket)
        case ["b", bucket, "notificationConfigs", *item] if len(item) <= 1:
            found = await asyncio.to_thread(store.bucket, bucket)
            return await extras.notifications.answer(request, found, *item)
        case ["projects", project, "serviceAccount"]:
            return answer_service_account(request, project)
        case ["projects", project, "hmacKeys", *item] if len(item) <= 1:
            return extras.hmac_keys.answer(request, project, *item, resource=await request.json())
        case ["b", bucket, "storageLayout"]:
            return await _layout(store, bucket)
        case ["b", _, what, *_] if what in _OF_BUCKETS:
            raise NotEmulated(_OF_BUCKETS[what])
    raise NotEmulated(f"{request.method} /{'/'.join(request.segments)}")


async def _with_lists(
    store: ObjectStore, extras: _Extras, request: StorageRequest, bucket: str, answer: _Answering
) -> Answer | ObjectReader:
    """Answers a request for a bucket or an object, with access control lists if it sets them or asks for them."""
    if request.method not in ("PATCH", "PUT") and request.parameters.get("projection") != "full":
        return await answer(request)
    return await extras.access.around(request, await asyncio.to_thread(store.bucket, bucket), answer)


async def _layout(store: ObjectStore, bucket: str) -> Answer:
    """Answers whether a bucket has a hierarchical namespace; no bucket has one."""
    found = await asyncio.to_thread(store.bucket, bucket)
    layout = {"kind": "storage#storageLayout", "bucket": found.name, "location": "US", "locationType": "multi-region"}
    return json_answer({**layout, "hierarchicalNamespace": {"enabled": False}})


async def _whole(store: ObjectStore, extras: _Extras, request: StorageRequest) -> Answer:
    """Answers one call of a batch, including errors; a batch cannot request media."""
    try:
        answered = await _json(store, extras, request)
    except StoreError as error:
        return error_json(_as_answered(error, request.method))
    except ConnectionError:
        raise
    except (OSError, sqlite3.Error) as error:  # earlier calls of the batch have to be answered
        return error_json(store.refusal(error))
    if isinstance(answered, ObjectReader):
        answered.close()
        return error_json(NotEmulated("media in a batch"))
    return answered


async def _answer_batch(store: ObjectStore, extras: _Extras, request: StorageRequest) -> Answer:
    """Answers the calls of a batch, ``multipart/mixed``, one after the other.

    Raises Invalid if the body is not a batch, or has more than 100 calls.
    """
    content_type = request.headers.get("content-type", "")
    boundary = boundary_of(content_type)
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1")
    body_of_parts = head + await request.body()
    try:
        message = BytesParser().parsebytes(body_of_parts)
        parts = [part for part in message.walk() if part.get_content_type() == "application/http"]
    except RecursionError:
        raise Invalid("The parts of the batch have parts in parts without an end") from None
    if len(parts) > _MOST:
        raise Invalid(f"A batch has at most {_MOST} calls, not {len(parts)}")
    body = bytearray()
    for part in parts:
        payload = part.get_payload(decode=True)
        answered = await _whole(store, extras, _inner(request, payload if isinstance(payload, bytes) else b""))
        reply_to = str(part.get("content-id", "<0>")).strip("<>")
        lines = [f"HTTP/1.1 {answered.status} ", *(f"{k}: {v}" for k, v in answered.headers.items())]
        lines.append(f"Content-Length: {len(answered.body)}")
        body += b"--" + boundary + b"\r\nContent-Type: application/http\r\n"
        body += f"Content-ID: <response-{reply_to}>\r\n\r\n".encode()
        body += "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + answered.body + b"\r\n"
    body += b"--" + boundary + b"--\r\n"
    return Answer(200, bytes(body), {"content-type": f"multipart/mixed; boundary={boundary.decode('latin-1')}"})


def _inner(outer: StorageRequest, payload: bytes) -> StorageRequest:
    head, _, content = payload.lstrip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *header_lines = head.decode("latin-1").split("\n")
    words = line.split()
    if len(words) < 2:
        raise Invalid("A part of the batch is not an HTTP request")
    try:
        address = urlsplit(words[1])
    except ValueError:
        raise Invalid(f"A part of the batch is for {words[1][:80]!r}, which is not an address") from None
    if address.path.startswith("/batch"):
        raise Invalid("A batch has no batches in it")
    headers = {name.strip().lower(): value.strip() for name, _, value in (h.partition(":") for h in header_lines)}

    async def receive() -> Message:
        return {"type": "http.request", "body": content}

    scope = {
        "method": words[0].upper(),
        "scheme": outer.scheme,
        "raw_path": address.path.encode("latin-1"),
        "query_string": address.query.encode("latin-1"),
        "headers": [],
    }
    return dataclasses.replace(StorageRequest.of(scope, receive), headers=headers, host=outer.host)
