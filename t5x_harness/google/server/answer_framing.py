"""How an answer is cut out of the bytes of a connection: its head, and where its body ends."""

from __future__ import annotations

import http

from t5x_harness.google.asgi import Message

__all__ = ["AnswerFraming", "plain_answer"]

_STATUS_LINES = {it.value: f"HTTP/1.1 {it.value} {it.phrase}\r\n".encode() for it in http.HTTPStatus}
_NO_SNIFFING = b"X-Content-Type-Options: nosniff"  # a browser is to take no object for a script or a page


def plain_answer(status: int, text: str, reason: str = "") -> bytes:
    """A whole answer of one line, with which a connection ends.

    Args:
      status: of the answer.
      text: the line.
      reason: takes the place of the status's own phrase.
    """
    body = f"{text}\n".encode("ascii", "replace")
    line = f"HTTP/1.1 {status} {reason or http.HTTPStatus(status).phrase}".encode("ascii", "replace")
    fields = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d" % len(body)
    return b"%b\r\n%b\r\n%b\r\n\r\n%b" % (line, fields, _NO_SNIFFING, body)


class AnswerFraming:
    """The framing of one answer.

    Args:
      method: of the request.
      version: of the request, ``1.1`` or ``1.0``.

    Attributes:
      keep_alive: whether the connection can be used again; known with the head.
    """

    def __init__(self, method: str, version: str) -> None:
        self.keep_alive = True
        self._head_only = method == "HEAD"
        self._version = version
        self._chunked = False
        self._left: int | None = None  # bytes; None if Content-Length says nothing

    def head(self, start: Message, size: int | None, date: bytes, keep_alive: bool) -> bytes:
        """The head of the answer.

        Args:
          start: ASGI's ``http.response.start``; with ``reason``, the phrase behind the status, if it is not the usual.
          size: of the body if it is there in one piece, which then need not name its length.
          date: of now, as HTTP has it.
          keep_alive: whether the client, and who answers, would use the connection again.
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
                keep_alive = False  # its end is the connection's
        self.keep_alive = keep_alive and given.get(b"connection", b"").lower() != b"close"
        if not self.keep_alive and b"connection" not in given:
            headers.append((b"Connection", b"close"))
        line = _STATUS_LINES.get(status)
        if line is None or "reason" in start:
            line = b"HTTP/1.1 %d %b\r\n" % (status, start.get("reason", b""))
        return b"%bDate: %b\r\n%b\r\n%b\r\n" % (
            line,
            date,
            _NO_SNIFFING,
            b"".join([b"%b: %b\r\n" % header for header in headers]),
        )

    def framed(self, body: bytes, *, more: bool) -> bytes:
        """A piece of the body as it goes over the connection.

        Raises:
          RuntimeError: the pieces are not as long as Content-Length says.
        """
        if self._head_only:
            return b""
        if self._chunked:
            return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of the answer is not as long as its Content-Length")
        return body
