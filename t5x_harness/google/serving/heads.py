"""Takes a header out of requests that no HTTP library accepts: TensorFlow's ``Transfer-Encoding: identity``.

TensorFlow sends it with every upload, next to the Content-Length. It says nothing (RFC 2616 had it as the name of "no
encoding"; it has since been struck out), and Google takes it.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST_HEAD", "HeadFilter", "drop_identity"]

LONGEST_HEAD = 1 << 16
"""The most bytes that a request's head may have; a name of 1024 bytes takes three times that when it is quoted."""

_END = re.compile(rb"\n\r?\n")
_IDENTITY = re.compile(rb"(?im)^transfer-encoding:[ \t]*identity[ \t]*\r?\n")


class HeadFilter:
    """Holds the head of one request back until it is whole, and lets it through without the header."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> bytes:
        """What may go on: nothing, until the head is whole; then all of it, with what came behind it.

        A head that is longer than any may be is let through as it is, for it to be refused.
        """
        self._held += data
        end = _END.search(self._held, self._searched)
        if end is None:
            self._searched = max(0, len(self._held) - 2)
            if len(self._held) <= LONGEST_HEAD:
                return b""
            return self._take(len(self._held))
        return drop_identity(self._take(end.end())) + self._take(len(self._held))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        self._searched = 0
        return taken


def drop_identity(head: bytes) -> bytes:
    """The head of a request, without its lines ``Transfer-Encoding: identity``."""
    return _IDENTITY.sub(b"", head)
