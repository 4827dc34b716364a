"""A request as the APIs read it: decoded path, parameters, headers, and a streaming body."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

from t5x_harness.google.asgi import Message, Receive, Scope
from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.storage.errors import Invalid

_CHUNK = 1 << 20
_LARGEST_JSON = 16 << 20


class Body:
    """A request's body from ASGI, which knows its end; one more read would wait for the client."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._over = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Reads and discards the rest."""
        while not self._over:
            await self.receive()


@dataclasses.dataclass(frozen=True)
class StorageRequest:
    """One request.

    Attributes:
      method: the method, in capitals.
      host: the host in the client's request, with its port.
      scheme: ``http`` or ``https``.
      segments: the path between slashes, each decoded by itself, so that ``%2F`` stays inside a name.
      parameters: the parameters of the query; the last one of a name counts.
      headers: the headers, by names in lower case.
      receive: the function that receives the body.
    """

    method: str
    host: str
    scheme: str
    segments: tuple[str, ...]
    parameters: Mapping[str, str]
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
        return cls(scope["method"], host, scope["scheme"], segments, parameters, headers, receive)

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
                if held:  # a resumable upload continues behind the bytes that have arrived
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

    async def skip(self) -> None:
        """Reads and discards the body."""
        async for _ in self.chunks():
            pass

    async def json(self) -> dict[str, Any]:
        """Returns the body as a JSON object, empty for an empty body; raises Invalid if it is not an object."""
        return parse_json(await self.body())


def parse_query(query: bytes, *, errors: str = "replace") -> dict[str, str]:
    """Returns the parameters of a query; the last one of a name counts.

    Args:
      query: the raw query; with little quoting, this is several times as fast as ``urllib.parse.parse_qsl``.
      errors: how to handle bytes that are not UTF-8, as in ``bytes.decode``.
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


def utf8_text(raw: bytes, what: str) -> str:
    """Decodes text; raises Invalid if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{what} has to be UTF-8, not {raw[:80]!r}") from None
