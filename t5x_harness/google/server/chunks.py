"""Decodes chunked bodies and finds where they end (RFC 9112, 7.1)."""

from __future__ import annotations

import re

_LONGEST_LINE = 1 << 13
_LONGEST_TRAILERS = 1 << 16
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")


class NotChunked(Exception):
    """The data is not a chunked body; the message says why."""


class Chunks:
    """Decodes the body of one request.

    Attributes:
      over: whether the body has ended.
    """

    def __init__(self) -> None:
        self.over = False
        self._left = 0  # bytes of the current chunk that are still to come
        self._line = b""  # an incomplete line
        self._ends_chunk = False  # whether the next line is the empty one at the end of a chunk
        self._trailers = -1  # the size of the lines after the last chunk; -1 before it

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Decodes the next bytes.

        Returns:
          Pieces of the body, and the bytes after its end.

        Raises:
          NotChunked: the data is not a chunked body.
        """
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.over:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
                continue
            newline = data.find(b"\n", at)
            line = self._line + data[at : end if newline < 0 else newline + 1]
            if len(line) > _LONGEST_LINE:
                raise NotChunked(f"a line of more than {_LONGEST_LINE} bytes between its chunks")
            if newline < 0:
                self._line = line
                break
            self._line, at = b"", newline + 1
            self._take(line)
        return pieces, data[at:] if self.over else b""

    def _take(self, line: bytes) -> None:
        is_empty = line in (b"\r\n", b"\n")
        if self._trailers >= 0:
            self.over = is_empty
            self._trailers += len(line)
            if self._trailers > _LONGEST_TRAILERS:
                raise NotChunked(f"trailers of more than {_LONGEST_TRAILERS} bytes")
        elif self._ends_chunk:
            if not is_empty:
                raise NotChunked("a chunk is longer than it says")
            self._ends_chunk = False
        else:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise NotChunked("a chunk does not begin with its size")
            self._left = int(size[1], 16)
            self._ends_chunk = bool(self._left)
            self._trailers = -1 if self._left else 0
