"""Reads one request off a connection; its head with httptools: the parser of Node.js (llhttp) for Python."""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from t5x_harness.google.server.chunks import Chunks, NotChunked
from t5x_harness.google.server.heads import HeadBuffer, HeadTooLong

__all__ = ["BadRequest", "RequestParser"]

_LONGEST_NUMBER = 18  # digits: more than any disk has bytes


class BadRequest(Exception):
    """What came is no request of HTTP/1.1, or one that is not served.

    Args:
      reason: what is wrong with it.
      status: of the answer.
    """

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class RequestParser:
    """The parser of one request, which knows where it ends: what comes behind it is another one's.

    httptools reads the head. It would go on from a body into the next request, so where a body ends is found here.

    Attributes:
      method: in capitals; empty until the head is whole, as all that follows.
      target: the path with its query, or whatever else the first line has.
      version: ``1.1`` or ``1.0``.
      headers: their names in lower case.
      keep_alive: whether the connection is to be used again.
      over: whether the request has ended.
    """

    def __init__(self) -> None:
        self.method = ""
        self.target = b""
        self.version = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.keep_alive = False
        self.over = False
        self._head = HeadBuffer()
        self._left = 0  # bytes of the body, if it is not chunked
        self._chunks: Chunks | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a part of the head, and not yet the rest."""
        return self._head.begun

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Takes in bytes.

        Returns:
          Pieces of the body, and what is left behind the end of the request.

        Raises:
          BadRequest: it is none.
        """
        if not self.method:
            data = self._feed_head(data)
        if self.over or not data:
            return [], data
        if self._chunks is not None:
            try:
                pieces, data = self._chunks.feed(data)
            except NotChunked as error:
                raise BadRequest(str(error)) from None
            self.over = self._chunks.over
            return pieces, data
        piece = data[: self._left]  # data itself, uncopied, if it is no longer
        self._left -= len(piece)
        self.over = self._left == 0
        return [piece], data[len(piece) :]

    def _feed_head(self, data: bytes) -> bytes:
        try:
            head, behind = self._head.feed(data)
        except HeadTooLong as error:
            raise BadRequest(str(error)) from None
        if head:
            self._parse(head)
            self._begin_body()
        return behind

    def _parse(self, head: bytes) -> None:
        parser = HttpRequestParser(self)
        # TensorFlow sends chunks beside a Content-Length, which then says nothing (RFC 9112, 6.3).
        parser.set_dangerous_leniencies(lenient_chunked_length=True)
        try:
            parser.feed_data(head)
        except HttpParserUpgrade:
            pass  # a server is free to stay with HTTP/1.1
        except HttpParserError as error:
            raise BadRequest(str(error)) from None
        self.version = parser.get_http_version()
        self.keep_alive = parser.should_keep_alive()
        self.method = parser.get_method().decode("ascii")

    def _begin_body(self) -> None:
        hosts = codings = 0
        coding, length = b"", b"0"
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                coding, codings = value.strip().lower(), codings + 1
            elif name == b"content-length":
                length = value.strip()
        if hosts > 1 or (not hosts and self.version == "1.1"):
            raise BadRequest(f"it has {hosts} Host headers instead of one")
        if codings:
            if coding != b"chunked" or codings > 1:
                raise BadRequest("of all Transfer-Encodings, only chunked alone is served", 501)
            self._chunks = Chunks()
            return
        if not length.isdigit() or len(length.lstrip(b"0")) > _LONGEST_NUMBER:
            raise BadRequest("its Content-Length is no number of bytes that a body can have")
        self._left = int(length[-_LONGEST_NUMBER:])
        self.over = self._left == 0

    # What httptools calls.

    def on_url(self, url: bytes) -> None:
        """The target, or a part of it."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.headers.append((name.lower(), value))
