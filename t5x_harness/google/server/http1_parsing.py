"""Parses heads and bodies of HTTP/1.1 requests, and frames answers."""

import http
import re
from email.utils import formatdate

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from t5x_harness.google.asgi import Message

_LONGEST_LINE = 1 << 13
_LONGEST_TRAILERS = 1 << 16
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")


class BadRequest(Exception):
    """The data is not an HTTP/1.1 request, or is one that is not supported."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Chunks:
    """Decodes the body of one request."""

    def __init__(self) -> None:
        self.over = False
        self._left = 0  # bytes of the current chunk that are still to come
        self._line = b""  # an incomplete line
        self._ends_chunk = False  # whether the next line is the empty one at the end of a chunk
        self._trailers = -1  # the size of the lines after the last chunk; -1 before it

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Decodes the next bytes; returns pieces of the body, and the bytes after its end. Raises BadRequest."""
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
                raise BadRequest(f"a line of more than {_LONGEST_LINE} bytes between its chunks")
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
                raise BadRequest(f"trailers of more than {_LONGEST_TRAILERS} bytes")
        elif self._ends_chunk:
            if not is_empty:
                raise BadRequest("a chunk is longer than it says")
            self._ends_chunk = False
        else:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise BadRequest("a chunk does not begin with its size")
            self._left = int(size[1], 16)
            self._ends_chunk = bool(self._left)
            self._trailers = -1 if self._left else 0


LONGEST_HEAD = 1 << 16
"""The maximum size of a request's head, in bytes. A percent-encoded name of 1024 bytes takes three times its size."""

_BLANK_LINE = re.compile(rb"\n\r?\n")
_IDENTITY = re.compile(rb"(?im)^transfer-encoding:[ \t]*identity[ \t]*\r?\n")


_LONGEST_NUMBER = 18  # digits: enough for the bytes of any disk


class RequestParser:
    """The parser of one request, which finds where the request ends.

    httptools parses the head. It would continue from a body into the next request, so the body is delimited here.
    """

    def __init__(self) -> None:
        # All of these are empty until the head is complete.
        self.method = ""  # in capitals
        self.target = b""  # the path with its query, or anything that the first line has in its place
        self.version = ""  # 1.1 or 1.0
        self.headers: list[tuple[bytes, bytes]] = []  # with lower-case names
        self.keep_alive = False  # whether the client would use the connection again
        self.over = False  # whether the request has ended
        self._held = b""  # of a head that is not complete
        self._left = 0  # bytes of a body that is not chunked
        self._chunks: Chunks | None = None

    @property
    def begun(self) -> bool:
        """Whether an incomplete head has arrived."""
        return bool(self._held)

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Parses the next bytes; returns pieces of the body, and the bytes after the request. Raises BadRequest."""
        if not self.method:
            data = self._feed_head(data)
        if self.over or not data:
            return [], data
        if self._chunks is not None:
            pieces, data = self._chunks.feed(data)
            self.over = self._chunks.over
            return pieces, data
        piece = data[: self._left]  # data itself, without a copy, if all of it belongs to the body
        self._left -= len(piece)
        self.over = self._left == 0
        return [piece], data[len(piece) :]

    def _feed_head(self, data: bytes) -> bytes:
        """Adds to the head, which is parsed once it is complete; returns the bytes after it."""
        searched = max(0, len(self._held) - 2)
        # Some clients end a body with an empty line, which comes before the next request.
        self._held = self._held + data if self._held else data.lstrip(b"\r\n")
        end = _BLANK_LINE.search(self._held, searched)
        if (end.end() if end else len(self._held)) > LONGEST_HEAD:
            raise BadRequest(f"a head of more than {LONGEST_HEAD} bytes")
        if end is None:
            return b""
        held, self._held = self._held, b""
        self._parse(_IDENTITY.sub(b"", held[: end.end()]))  # TensorFlow sends it, and parsers refuse it
        self._begin_body()
        return held[end.end() :]

    def _parse(self, head: bytes) -> None:
        parser = HttpRequestParser(self)
        # TensorFlow sends chunks and a Content-Length, which is then ignored (RFC 9112, 6.3).
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
            raise BadRequest("its Content-Length is not a number of bytes that a body can have")
        self._left = int(length[-_LONGEST_NUMBER:])
        self.over = self._left == 0

    # The methods that httptools calls.

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


_STATUS_LINES = {it.value: f"HTTP/1.1 {it.value} {it.phrase}\r\n".encode() for it in http.HTTPStatus}
_NO_SNIFFING = b"X-Content-Type-Options: nosniff"  # so that no browser treats an object as a script or a page


def plain_answer(status: int, text: str, reason: str = "") -> bytes:
    """Returns a complete answer of one line, with ``reason`` as its phrase, that closes the connection."""
    body = f"{text}\n".encode("ascii", "replace")
    line = f"HTTP/1.1 {status} {reason or http.HTTPStatus(status).phrase}".encode("ascii", "replace")
    fields = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d" % len(body)
    return b"%b\r\n%b\r\n%b\r\n\r\n%b" % (line, fields, _NO_SNIFFING, body)


class AnswerFraming:
    """The framing of one answer; once it has made the head, it knows whether the connection can be used again."""

    def __init__(self, method: str, version: str) -> None:
        self.keep_alive = True
        self._head_only = method == "HEAD"
        self._version = version
        self._chunked = False
        self._left: int | None = None  # bytes of the body that are still to come; None without a Content-Length

    def head(self, start: Message, size: int | None, keep_alive: bool) -> bytes:
        """Returns the head of the answer.

        Args:
          start: ASGI's ``http.response.start``; its ``reason``, if present, replaces the usual phrase of the status.
          size: the size of a body that is sent in one piece, which the headers need not have.
        """
        status: int = start["status"]
        headers = list(start["headers"])
        given = {name.lower(): value for name, value in headers}
        self._head_only = self._head_only or status in (204, 304)
        if b"content-length" in given:
            self._left = int(given[b"content-length"])
        elif not self._head_only:
            if size is not None:
                self._left = size
                headers.append((b"Content-Length", b"%d" % size))
            elif self._version == "1.1":
                self._chunked = True
                headers.append((b"Transfer-Encoding", b"chunked"))
            else:
                keep_alive = False  # the end of the connection ends the body
        self.keep_alive = keep_alive and given.get(b"connection", b"").lower() != b"close"
        if not self.keep_alive and b"connection" not in given:
            headers.append((b"Connection", b"close"))
        line = _STATUS_LINES.get(status)
        if line is None or "reason" in start:
            line = b"HTTP/1.1 %d %b\r\n" % (status, start.get("reason", b""))
        return b"%bDate: %b\r\n%b\r\n%b\r\n" % (
            line,
            formatdate(usegmt=True).encode(),
            _NO_SNIFFING,
            b"".join([b"%b: %b\r\n" % header for header in headers]),
        )

    def framed(self, body: bytes, *, more: bool) -> bytes:
        """Returns a piece of the body in the answer's framing; raises RuntimeError if it violates Content-Length."""
        if self._head_only:
            return b""
        if self._chunked:
            return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of the answer is not as long as its Content-Length")
        return body
