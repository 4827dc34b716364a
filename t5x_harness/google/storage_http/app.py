"""The application: which API a request is for, and errors in that API's form."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.google.asgi import Receive, Scope, Send, StorageApp
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import NoSuchBucket, NotModified, PreconditionFailed, StoreError
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage_http.answers import Answer, error_json, error_xml, json_answer, send_media
from t5x_harness.google.storage_http.batch_api import answer_batch
from t5x_harness.google.storage_http.bucket_api import (
    MissingBuckets,
    answer_bucket,
    answer_buckets,
    answer_policy,
    not_emulated,
)
from t5x_harness.google.storage_http.object_api import answer_listing, answer_object
from t5x_harness.google.storage_http.request import Body, StorageRequest
from t5x_harness.google.storage_http.upload_api import answer_upload
from t5x_harness.google.storage_http.xml_api import answer_xml

_TELL_SECONDS = 60
_OF_BUCKETS = {
    "acl": "access control lists",
    "defaultObjectAcl": "access control lists",
    "iam": "IAM policies",
    "notificationConfigs": "notifications",
    "anywhereCaches": "caches",
    "folders": "folders of hierarchical namespaces",
    "managedFolders": "managed folders",
}


def make_app(root: Path, *, create_buckets: bool = False) -> StorageApp:
    """Returns Cloud Storage over a folder.

    Args:
      root: keeps the buckets; see :class:`ObjectStore`.
      create_buckets: whether a bucket that is not there is made when it is first used.

    Raises:
      StoreError: the folder is not available.
    """
    return _App(ObjectStore(root, create_buckets=create_buckets), MissingBuckets(root / "buckets"))


class _App:
    def __init__(self, store: ObjectStore, missing: MissingBuckets) -> None:
        self._store = store
        self._missing = missing
        self._refusals = _DiskRefusals(store)
        self.close = store.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        json = _is_json(scope["raw_path"])
        head = scope["method"] == "HEAD"
        body = Body(receive)
        try:
            with self._refusals.recorded():
                request = StorageRequest.of(scope, body.receive)
                answered = await (_json(self._store, request) if json else answer_xml(self._store, request))
                if isinstance(answered, ObjectReader):
                    return await send_media(answered, request.headers, send, head=head, xml=not json)
        except StoreError as error:
            await body.drop()  # else the client still sends when the connection is closed, and never sees why
            if isinstance(error, NoSuchBucket):
                self._missing.note(error.bucket)
            refused = _as_answered(error, scope["method"])
            answered = error_json(refused) if json else error_xml(refused)
        await answered.send(send, head=head)


class _DiskRefusals:
    """What the disk refuses, as the store puts it, and once in a while on standard error for who runs the server."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._reported = -math.inf

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Raises StoreError in place of what the system says of the disk."""
        try:
            yield
        except ConnectionError:  # of the client
            raise
        except (OSError, sqlite3.Error) as error:
            refused = self._store.refusal(error)
            if time.monotonic() - self._reported > _TELL_SECONDS:
                self._reported = time.monotonic()
                print(f"{PRODUCT}: {refused.message}", file=sys.stderr, flush=True)
            raise refused from error


def _as_answered(error: StoreError, method: str) -> StoreError:
    """Answers reads alone with 304: a write whose condition does not hold has failed."""
    if isinstance(error, NotModified) and method not in ("GET", "HEAD"):
        return PreconditionFailed(error.message)
    return error


def _is_json(raw_path: bytes) -> bool:
    return raw_path.startswith(
        (b"/storage/v1", b"/upload/storage/v1", b"/resumable/upload/storage/v1", b"/download/storage/v1", b"/batch")
    )


async def _json(store: ObjectStore, request: StorageRequest) -> Answer | ObjectReader:
    """Routes a call of the JSON API."""
    segments = list(request.segments)
    if segments[0] == "batch":
        return await answer_batch(request, lambda inner: _whole(store, inner))
    if segments[0] == "resumable":
        segments.pop(0)
    kind = segments.pop(0) if segments[0] in ("upload", "download") else ""
    match segments[2:]:
        case ["b"]:
            return await answer_buckets(store, request)
        case ["b", bucket, "o"] if kind == "upload":
            return await answer_upload(store, request, bucket)
        case ["b", bucket]:
            return await answer_bucket(store, request, bucket)
        case ["b", bucket, "o"]:
            return await answer_listing(store, request, bucket)
        case ["b", bucket, "o", *rest] if any(rest):
            return await answer_object(store, request, bucket, rest)
        case ["b", bucket, "iam"]:
            return await answer_policy(store, request, bucket)
        case ["b", bucket, "storageLayout"]:
            return await _layout(store, request, bucket)
        case ["b", _, what, *_] if what in _OF_BUCKETS:
            raise not_emulated(_OF_BUCKETS[what])
    raise not_emulated(f"{request.method} /{'/'.join(request.segments)}")


async def _layout(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    """Returns what clients ask to see whether a bucket has folders of its own: it has none."""
    found = await asyncio.to_thread(store.bucket, bucket)
    layout = {"kind": "storage#storageLayout", "bucket": found.name, "location": "US", "locationType": "multi-region"}
    return json_answer({**layout, "hierarchicalNamespace": {"enabled": False}})


async def _whole(store: ObjectStore, request: StorageRequest) -> Answer:
    """Returns one call of a batch, its errors answered; media cannot be asked for in one."""
    try:
        answered = await _json(store, request)
    except StoreError as error:
        return error_json(_as_answered(error, request.method))
    except ConnectionError:
        raise
    except (OSError, sqlite3.Error) as error:  # what was done before it in the batch has to be answered
        return error_json(store.refusal(error))
    if isinstance(answered, ObjectReader):
        answered.close()
        return error_json(not_emulated("media in a batch"))
    return answered
