"""Reads one request off a connection, with httptools: the parser of Node.js (llhttp) for Python."""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from t5x_harness.google.serving.heads import BLANK_LINE, HeadBuffer, HeadTooLong

__all__ = ["BadRequest", "RequestParser"]


class BadRequest(Exception):
    """What came is no request of HTTP/1.1."""


class RequestParser:
    """The parser of one request, which knows where it ends: what comes behind it is another one's.

    httptools reads heads and chunked bodies. A body whose length is known passes it by, as there is nothing to read.

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
        self._parser = HttpRequestParser(self)
        # TensorFlow sends chunks beside a Content-Length, which then says nothing (RFC 9112, 6.3).
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True)
        self._left: int | None = None  # bytes; None if the body is chunked
        self._before = b""  # of a chunked body: what a blank line may have begun in
        self._body: list[bytes] = []

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
        if self._left is None:
            return self._feed_chunked(data)
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
            self.method = self._parser.get_method().decode("ascii")
            given = dict(self.headers)
            coding, length = given.get(b"transfer-encoding"), given.get(b"content-length")
            if coding is not None and not coding.lower().endswith(b"chunked"):
                raise BadRequest("its Transfer-Encoding does not say where the body ends")
            self._left = int(length) if length is not None and coding is None else None
            if self._left is not None or self.over:
                self._end_parsing()
        return behind

    def _feed_chunked(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Stops at every blank line, one of which ends the body: httptools would go on into the next request."""
        before, start = len(self._before), 0
        seen = self._before + data
        for line in BLANK_LINE.finditer(seen):
            end = line.end() - before
            self._parse(data[start:end])
            start = end
            if self.over:
                self._end_parsing()
                break
        else:
            self._parse(data[start:])
            start = len(data)
            self._before = seen[-2:]
        pieces, self._body = self._body, []
        return pieces, data[start:]

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # a server is free to stay with HTTP/1.1
        except HttpParserError as error:
            raise BadRequest(str(error)) from None

    def _end_parsing(self) -> None:
        del self._parser  # which holds this object, too: both would wait for the garbage collector

    # What httptools calls.

    def on_url(self, url: bytes) -> None:
        """The target, or a part of it."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one behind a chunked body, which nothing here looks at."""
        if not self.method:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The end of the head."""
        self.version = self._parser.get_http_version()
        self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """A piece of a chunked body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The end of the request."""
        self.over = True
