"""Takes a header out of requests that no HTTP library accepts: TensorFlow's ``Transfer-Encoding: identity``.

TensorFlow sends it with every upload, next to the Content-Length. It says nothing (RFC 2616 had it as the name of "no
encoding"; it has since been struck out), and Google takes it.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST_HEAD", "HeadBuffer", "HeadTooLong", "drop_identity"]

LONGEST_HEAD = 1 << 16
"""The most bytes that a request's head may have; a name of 1024 bytes takes three times that when it is quoted."""

_BLANK_LINE = re.compile(rb"\n\r?\n")
"""Ends a head."""

_IDENTITY = re.compile(rb"(?im)^transfer-encoding:[ \t]*identity[ \t]*\r?\n")


class HeadTooLong(Exception):
    """A head of more than :data:`LONGEST_HEAD` bytes."""


class HeadBuffer:
    """Holds the head of one request back until it is whole."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def begun(self) -> bool:
        """Whether there is a part of it, and not yet the rest."""
        return bool(self._held)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Takes in the next bytes.

        Returns:
          The head without the header, and what came behind it; both are empty until the head is whole.

        Raises:
          HeadTooLong: it does not end.
        """
        searched = max(0, len(self._held) - 2)
        # Lines may come before a request: some clients end a body with one.
        held = self._held + data if self._held else data.lstrip(b"\r\n")
        end = _BLANK_LINE.search(held, searched)
        if (end.end() if end else len(held)) > LONGEST_HEAD:
            raise HeadTooLong(f"a head of more than {LONGEST_HEAD} bytes")
        if end is None:
            self._held = held
            return b"", b""
        self._held = b""
        return drop_identity(held[: end.end()]), held[end.end() :]


def drop_identity(head: bytes) -> bytes:
    """The head of a request, without its lines ``Transfer-Encoding: identity``."""
    return _IDENTITY.sub(b"", head)
