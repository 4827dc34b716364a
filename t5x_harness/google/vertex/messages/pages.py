"""Page tokens: where a list goes on, good only for the request that they were given to."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
from typing import Any, Self

from google.protobuf.message import Message

from t5x_harness.google.vertex.wire.errors import ApiError, Code, Violation

__all__ = ["PageToken", "page_bounds", "page_size"]


@dataclasses.dataclass(frozen=True)
class PageToken:
    """A place in a list.

    Attributes:
      last: the name of the last one that was told.
      offset: how many were told; where to go on when that one is gone.
    """

    last: str
    offset: int

    def encode(self, request: Message) -> str:
        """The text that clients send back."""
        content = json.dumps([self.last, self.offset]).encode()
        return base64.urlsafe_b64encode(_seal(request, content) + content).decode()

    @classmethod
    def decode(cls, text: str, request: Message) -> Self:
        """Reads a token that comes with a request.

        Raises:
          ApiError: INVALID_ARGUMENT: it is none, or was given to a request that asked for something else.
        """
        try:
            data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            data = b""
        seal, content = data[:_SEAL], data[_SEAL:]
        if not content or seal != _seal(request, content):
            raise ApiError(
                Code.INVALID_ARGUMENT,
                "Invalid page_token: it is none that a page of this list was answered with; parent, filter and "
                "order_by have to be those of the first page",
            )
        last, offset = json.loads(content)
        return cls(last, offset)


_SEAL = 12


def _seal(request: Any, content: bytes) -> bytes:
    """What ties a token to everything in a request but the page that is asked for."""
    bound = type(request)()
    bound.CopyFrom(request)
    for field in ("page_token", "page_size"):
        bound.ClearField(field)
    identity = type(request).__name__.encode() + b"\0" + bound.SerializeToString(deterministic=True)
    return hashlib.sha256(identity + b"\0" + content).digest()[:_SEAL]


def page_bounds(names: list[str], request: Any, size: int) -> tuple[int, int]:
    """The first of a page and the one behind its last, as indices.

    Args:
      names: of all that are listed, in their order.
      request: with ``page_token``.
      size: of a page.

    Raises:
      ApiError: INVALID_ARGUMENT: a token that is none.
    """
    first = 0
    if request.page_token:
        token = PageToken.decode(request.page_token, request)
        first = names.index(token.last) + 1 if token.last in names else token.offset
    return first, first + size


def page_size(request: Any, default: int, largest: int) -> int:
    """How many a page has.

    Args:
      request: with ``page_size``; 0 for no wish.
      default: how many it has then.
      largest: how many it has at most.

    Raises:
      ApiError: INVALID_ARGUMENT: a negative number.
    """
    size: int = request.page_size
    if size < 0:
        raise ApiError.of_violations([Violation("page_size", f"{size} is negative")])
    return min(size or default, largest)
