"""Where a chunked body ends (RFC 9112, 7.1), whatever its chunks look like."""

from __future__ import annotations

import re

_LONGEST_LINE = 1 << 13
_LONGEST_TRAILERS = 1 << 16
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")


class NotChunked(Exception):
    """What came is not a body in chunks; the message says where."""


class Chunks:
    """Reads the body of one request."""

    def __init__(self) -> None:
        self.over = False
        self._left = 0  # bytes of a chunk
        self._line = b""  # the beginning of one
        self._ends_chunk = False  # whether a line is the end of one, and empty
        self._trailers = -1  # bytes of lines behind the last chunk; -1 before it

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Takes in bytes.

        Returns:
          Pieces of the body, and what is left behind its end.

        Raises:
          NotChunked: this is none.
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
