"""A request as the APIs read it: decoded path, parameters, headers, and a body that streams."""

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
    """A request's body as ASGI gives it, which knows when it is over: asking once more would wait for the client."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._over = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Reads what is left, for nothing."""
        while not self._over:
            await self.receive()


@dataclasses.dataclass(frozen=True)
class StorageRequest:
    """One request.

    Attributes:
      method: in capitals.
      host: as the client named it, with its port.
      scheme: ``http`` or ``https``.
      segments: the path between slashes, each decoded by itself, so that ``%2F`` stays inside a name.
      parameters: of the query; the last one of a name counts.
      headers: names in lower case.
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
        """What links in answers begin with: the server as this client reaches it."""
        return f"{self.scheme}://{self.host}"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces of about a megabyte; raises ConnectionResetError if the client went away."""
        held = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                if held:  # what has arrived counts: a resumable upload goes on from there
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
        """Returns the whole body, where it is short by its nature; raises Invalid if it is too long for that."""
        whole = bytearray()
        async for chunk in self.chunks():
            whole += chunk
            if len(whole) > _LARGEST_JSON:
                raise Invalid("The body of the request is too long")
        return bytes(whole)

    async def skip(self) -> None:
        """Reads the body, for nothing, however long it is."""
        async for _ in self.chunks():
            pass

    async def json(self) -> dict[str, Any]:
        """Reads the body as a JSON object, empty if there is none; raises Invalid if it is something else."""
        return parse_json(await self.body())


def parse_query(query: bytes, *, errors: str = "replace") -> dict[str, str]:
    """Returns the parameters of a query; the last one of a name counts.

    Args:
      query: as it came; several times as fast as ``urllib.parse.parse_qsl`` where little of it is quoted.
      errors: what becomes of bytes that are not UTF-8, as ``bytes.decode`` has it.
    """
    pairs = (field.partition("=") for field in query.decode("latin-1").split("&") if field)
    return {_unquoted(name, errors): _unquoted(value, errors) for name, _, value in pairs}


def _unquoted(text: str, errors: str) -> str:
    return unquote(text.replace("+", " "), errors=errors) if "%" in text or "+" in text else text


def parse_json(body: bytes) -> dict[str, Any]:
    """Reads a JSON object that an answer can give back, empty for no text; raises Invalid if it is something else."""
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
    """Returns text that came as bytes; raises Invalid if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{what} has to be UTF-8, not {raw[:80]!r}") from None
