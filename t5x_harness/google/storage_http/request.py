"""A request as the APIs read it, with a streaming body, and its target as faults and the record of requests see it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from email.message import Message as MailMessage
from typing import Any, NamedTuple
from urllib.parse import unquote

from t5x_harness.google.asgi import Message, Receive, Scope, header_of
from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.storage.errors import Invalid

_CHUNK = 1 << 20
_LARGEST_JSON = 16 << 20


class Body:
    """A request's body from ASGI, which remembers its end, because another read would wait for the client."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._over = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Reads and discards the rest, because a client that is still sending would not see the answer."""
        while not self._over:
            await self.receive()


_JSON_APIS = (
    b"/storage/v1",
    b"/upload/storage/v1",
    b"/resumable/upload/storage/v1",
    b"/download/storage/v1",
    b"/batch",
)


def is_json_api(scope: Scope) -> bool:
    """Tells whether a request is for the JSON API, not the XML API."""
    return bool(scope["raw_path"].startswith(_JSON_APIS))


@dataclasses.dataclass(frozen=True)
class StorageRequest:
    """One request."""

    method: str  # the method, in capitals
    host: str  # the host in the client's request, with its port
    scheme: str
    segments: tuple[str, ...]  # the path between slashes, each part decoded separately: ``%2F`` stays in a name
    parameters: Mapping[str, str]  # the last one of each name
    query: str  # all parameters, as they were sent
    headers: Mapping[str, str]
    receive: Receive

    @classmethod
    def of(cls, scope: Scope, receive: Receive) -> StorageRequest:
        """Reads an ASGI scope; raises Invalid if path or parameters are not UTF-8."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["raw_path"].decode("latin-1").partition("?")[0]
        try:
            parts = path.removeprefix("/").split("/")
            segments = tuple(unquote(part, errors="strict") if "%" in part else part for part in parts)
            parameters = parse_query(scope["query_string"], errors="strict")
        except UnicodeDecodeError:
            raise Invalid("The path and the parameters have to be UTF-8") from None
        host = headers.get("host", "storage.googleapis.com")
        query = scope["query_string"].decode("latin-1")
        return cls(scope["method"], host, scope["scheme"], segments, parameters, query, headers, receive)

    @property
    def origin(self) -> str:
        """The start of links in answers: the server's address as this client reaches it."""
        return f"{self.scheme}://{self.host}"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces of about a megabyte; raises ConnectionResetError if the client went away."""
        held = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                if held:  # a resumable upload continues after the bytes that have arrived
                    yield bytes(held)
                raise ConnectionResetError("the client went away")
            held += message.get("body", b"")
            last = not message.get("more_body", False)
            if held and (last or len(held) >= _CHUNK):
                yield bytes(held)
                held.clear()
            if last:
                return

    async def body(self) -> bytes:
        """Returns the whole body of a request that should be short; raises Invalid if it is too long."""
        whole = bytearray()
        async for chunk in self.chunks():
            whole += chunk
            if len(whole) > _LARGEST_JSON:
                raise Invalid("The body of the request is too long")
        return bytes(whole)

    async def json(self) -> dict[str, Any]:
        """Returns the body as a JSON object, empty for an empty body; raises Invalid if it is not an object."""
        return parse_json(await self.body())


def parse_query(query: bytes, *, errors: str = "replace") -> dict[str, str]:
    """Returns the parameters of a query; the last one with a name counts.

    With little quoting, this is several times as fast as ``urllib.parse.parse_qsl``.
    """
    pairs = (field.partition("=") for field in query.decode("latin-1").split("&") if field)
    return {_unquoted(name, errors): _unquoted(value, errors) for name, _, value in pairs}


def _unquoted(text: str, errors: str) -> str:
    return unquote(text.replace("+", " "), errors=errors) if "%" in text or "+" in text else text


def parse_json(body: bytes) -> dict[str, Any]:
    """Reads a JSON object that an answer can repeat, empty for no text; raises Invalid if it is not an object."""
    if not body.strip():
        return {}
    try:
        value = read_json(body)
    except BadJson as error:
        raise Invalid(f"Parse Error: {error}", reason="parseError") from None
    if not isinstance(value, dict):
        raise Invalid("The body has to be a JSON object")
    return value


_LONGEST_METADATA = 64 << 10
_DECODER = json.JSONDecoder()
_VERBS = {"GET": "get", "HEAD": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "patch", "POST": "upload"}
_OF_BUCKET = {**_VERBS, "POST": "create"}


class RequestTarget(NamedTuple):
    """The target of a request; a bucket or object that it does not name is empty."""

    operation: str
    bucket: str = ""
    object: str = ""


def meaning_of(scope: Scope, parameters: Mapping[str, str]) -> RequestTarget:
    """Returns the target of a request; for a copy or a move, the object that it makes."""
    path, method = scope["raw_path"].decode("latin-1").partition("?")[0], scope["method"]
    if not is_json_api(scope):
        return _by_xml(scope, path, method, parameters)
    segments = [unquote(part) for part in path.removeprefix("/resumable").removeprefix("/").split("/")]
    kind = segments.pop(0) if segments[0] in ("upload", "download") else ""
    match method, segments:
        case _, ["batch", *_]:
            return RequestTarget("batch")
        case _, ["storage", "v1", "b", bucket, "o"] if kind == "upload":
            return RequestTarget("upload", bucket, parameters.get("name", ""))
        case _, ["storage", "v1", "b", bucket, "o"]:
            return RequestTarget("list", bucket)
        case "POST", ["storage", "v1", "b", bucket, "o", name, "compose"]:
            return RequestTarget("compose", bucket, name)
        case "POST", ["storage", "v1", "b", _, "o", _, "copyTo" | "rewriteTo" as how, "b", bucket, "o", name]:
            return RequestTarget(how.removesuffix("To"), bucket, name)
        case "POST", ["storage", "v1", "b", bucket, "o", _, "moveTo", "o", name]:
            return RequestTarget("move", bucket, name)
        case _, ["storage", "v1", "b", bucket, "o", *rest] if any(rest):
            media = method == "GET" and (kind == "download" or parameters.get("alt") == "media")
            return RequestTarget("download" if media else _VERBS.get(method, "other"), bucket, "/".join(rest))
        case "GET", ["storage", "v1", "b"]:
            return RequestTarget("bucket.list")
        case _, ["storage", "v1", "b", *bucket] if len(bucket) <= 1:
            return RequestTarget(f"bucket.{_OF_BUCKET.get(method, 'get')}", "".join(bucket))
    return RequestTarget("other")


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
    """Returns the name in the metadata that begin an upload, or ""; adds the messages that it reads to ``early``."""
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


def boundary_of(content_type: str) -> bytes:
    """Returns the boundary in a content type; raises Invalid if there is none."""
    message = MailMessage()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    if not boundary:
        raise Invalid("A multipart body needs a boundary in its content type")
    if len(boundary) > 2 and boundary[0] == boundary[-1] == "'":  # as gcloud and gsutil quote it
        boundary = boundary[1:-1]
    if not (boundary.isascii() and boundary.isprintable()):
        raise Invalid(f"A boundary has ASCII characters only, not {boundary[:80]!r}")
    return boundary.encode()
