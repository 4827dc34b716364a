"""The target of a request: its operation, bucket and object, for faults and the record of requests."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from t5x_harness.google.asgi import Message, Receive, Scope, header_of
from t5x_harness.google.storage_http.request import parse_query

_LONGEST_METADATA = 64 << 10
_DECODER = json.JSONDecoder()
_JSON_APIS = ("/storage/v1/", "/upload/storage/v1/", "/resumable/upload/storage/v1/", "/download/storage/v1/", "/batch")
_JSON_PATH = re.compile(r"(?:/resumable)?(?:/(upload|download))?/storage/v1/b(?:/([^/]+))?(?:/o(?:/(.+))?)?$")
_COMPOSED = re.compile(r"(.+?)/compose$")
_COPIED = re.compile(r".+?/(copyTo|rewriteTo)/b/([^/]+)/o/(.+)$")
_MOVED = re.compile(r".+?/moveTo/o/(.+)$")
_COPIED_BY = {"copyTo": "copy", "rewriteTo": "rewrite"}
_VERBS = {"GET": "get", "HEAD": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "patch", "POST": "upload"}
_OF_BUCKET = {**_VERBS, "POST": "create"}


class RequestTarget(NamedTuple):
    """The target of a request; a bucket or object that it does not name is empty."""

    operation: str
    bucket: str = ""
    object: str = ""


def parameters_of(scope: Scope) -> dict[str, str]:
    """Returns the parameters of the query; the last one of a name counts."""
    return parse_query(scope["query_string"])


def is_json_api(scope: Scope) -> bool:
    """Tells whether a request is for the JSON API, not the XML API."""
    return bool(scope["raw_path"].decode("latin-1").startswith(_JSON_APIS))


def meaning_of(scope: Scope, parameters: Mapping[str, str]) -> RequestTarget:
    """Returns the target of a request; for a copy or a move, the object that it makes."""
    path, method = scope["raw_path"].decode("latin-1").partition("?")[0], scope["method"]
    if not is_json_api(scope):
        return _by_xml(scope, path, method, parameters)
    if path.startswith("/batch"):
        return RequestTarget("batch")
    found = _JSON_PATH.match(path)
    if not found:
        return RequestTarget("other")
    kind, bucket, name = found[1], unquote(found[2] or ""), found[3] or ""
    if kind == "upload":
        return RequestTarget("upload", bucket, parameters.get("name", ""))
    if name:
        return _of_object(method, bucket, name, media=kind == "download" or parameters.get("alt") == "media")
    if path.endswith("/o"):
        return RequestTarget("list", bucket)
    return RequestTarget(f"bucket.{_OF_BUCKET.get(method, 'get') if bucket or method != 'GET' else 'list'}", bucket)


def _of_object(method: str, bucket: str, name: str, *, media: bool) -> RequestTarget:
    if method == "POST" and (composed := _COMPOSED.match(name)):
        return RequestTarget("compose", bucket, unquote(composed[1]))
    if method == "POST" and (copied := _COPIED.match(name)):
        return RequestTarget(_COPIED_BY[copied[1]], unquote(copied[2]), unquote(copied[3]))
    if method == "POST" and (moved := _MOVED.match(name)):
        return RequestTarget("move", bucket, unquote(moved[1]))
    verb = "download" if media and method == "GET" else _VERBS.get(method, "other")
    return RequestTarget(verb, bucket, unquote(name))


def _by_xml(scope: Scope, path: str, method: str, parameters: Mapping[str, str]) -> RequestTarget:
    host, dot, _ = header_of(scope, b"host").partition(".storage.googleapis.com")
    bucket, _, name = (host, "", path[1:]) if dot else path[1:].partition("/")
    bucket, name = unquote(bucket), unquote(name)
    if name:
        if "uploadId" in parameters or "uploads" in parameters:
            return RequestTarget("upload", bucket, name)
        copied = method == "PUT" and header_of(scope, b"x-goog-copy-source")
        verbs = {**_VERBS, "GET": "download", "PUT": "copy" if copied else "upload"}
        return RequestTarget(verbs.get(method, "other"), bucket, name)
    if bucket and method == "GET":
        return RequestTarget("list", bucket)
    return RequestTarget(f"bucket.{({**_OF_BUCKET, 'PUT': 'create'}).get(method, 'get') if bucket else 'list'}", bucket)


async def name_in_body(receive: Receive, early: list[Message]) -> str:
    """Returns the name in an upload's metadata, at the beginning of its body; empty if there is none.

    Args:
      receive: the function that receives the body.
      early: a list that takes the messages that were read here.
    """
    head = b""
    while len(head) < _LONGEST_METADATA:
        message = await receive()
        early.append(message)
        head += message.get("body", b"")
        with contextlib.suppress(ValueError, RecursionError):  # the rest is still to come, or it is invalid
            resource, _ = _DECODER.raw_decode(head[head.index(b"{") : _LONGEST_METADATA].decode(errors="replace"))
            name = resource.get("name")
            return name if isinstance(name, str) else ""
        if not message.get("more_body", False):
            break
    return ""
