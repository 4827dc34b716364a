"""The application: which API a request is for, and errors in that API's form."""

from __future__ import annotations

import asyncio
from pathlib import Path

from t5x_harness.google.http.answers import Answer, error_json, error_xml, json_answer, send_media
from t5x_harness.google.http.batch_api import answer_batch
from t5x_harness.google.http.bucket_api import answer_bucket, answer_buckets, not_emulated
from t5x_harness.google.http.bucket_policy import answer_policy
from t5x_harness.google.http.object_api import answer_listing, answer_object
from t5x_harness.google.http.request import Body, Request
from t5x_harness.google.http.upload_api import answer_upload
from t5x_harness.google.http.xml_api import answer_xml
from t5x_harness.google.serving.asgi import App, Receive, Scope, Send
from t5x_harness.google.storage.errors import NotModified, PreconditionFailed, StorageError
from t5x_harness.google.storage.reading import ObjectReader
from t5x_harness.google.storage.store import ObjectStore

__all__ = ["make_app"]

_OF_BUCKETS = {
    "acl": "access control lists",
    "defaultObjectAcl": "access control lists",
    "iam": "IAM policies",
    "notificationConfigs": "notifications",
    "anywhereCaches": "caches",
    "folders": "folders of hierarchical namespaces",
    "managedFolders": "managed folders",
}


def make_app(root: Path) -> App:
    """Cloud Storage over a folder.

    Args:
      root: keeps the buckets; see :class:`ObjectStore`.

    Raises:
      StorageError: the folder cannot be had.
    """
    store = ObjectStore(root)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(store, receive, send)
        json = _is_json(scope["raw_path"])
        head = scope["method"] == "HEAD"
        body = Body(receive)
        try:
            request = Request.of(scope, body.receive)
            answered = await (_json(store, request) if json else answer_xml(store, request))
        except StorageError as error:
            await body.drop()  # else the client still sends when the connection is closed, and never sees why
            refused = _as_answered(error, scope["method"])
            answered = error_json(refused) if json else error_xml(refused)
        if isinstance(answered, ObjectReader):
            await send_media(answered, request.headers, send, head=head)
        else:
            await answered.send(send, head=head)

    return app


async def _live(store: ObjectStore, receive: Receive, send: Send) -> None:
    """Closes the store when the server ends."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await asyncio.to_thread(store.close)
    await send({"type": "lifespan.shutdown.complete"})


def _as_answered(error: StorageError, method: str) -> StorageError:
    """Only reads are answered with 304: a write whose condition does not hold has failed."""
    if isinstance(error, NotModified) and method not in ("GET", "HEAD"):
        return PreconditionFailed(error.message)
    return error


def _is_json(raw_path: bytes) -> bool:
    return raw_path.startswith(
        (b"/storage/v1", b"/upload/storage/v1", b"/resumable/upload/storage/v1", b"/download/storage/v1", b"/batch")
    )


async def _json(store: ObjectStore, request: Request) -> Answer | ObjectReader:
    """Routes a call of the JSON API.

    Raises:
      StorageError: it cannot be done.
    """
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


async def _layout(store: ObjectStore, request: Request, bucket: str) -> Answer:
    """What clients ask to see whether a bucket has folders of its own: it has none."""
    found = await asyncio.to_thread(store.bucket, bucket)
    layout = {"kind": "storage#storageLayout", "bucket": found.name, "location": "US", "locationType": "multi-region"}
    return json_answer({**layout, "hierarchicalNamespace": {"enabled": False}})


async def _whole(store: ObjectStore, request: Request) -> Answer:
    """One call of a batch, its errors answered; media cannot be asked for in one."""
    try:
        answered = await _json(store, request)
    except StorageError as error:
        return error_json(_as_answered(error, request.method))
    if isinstance(answered, ObjectReader):
        answered.close()
        return error_json(not_emulated("media in a batch"))
    return answered
