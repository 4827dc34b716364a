"""The parent's end of one run: the link to the child, and the orders to its guard."""

from __future__ import annotations

import contextlib
import dataclasses
import selectors
import socket
import time
from typing import Any

from t5x_harness.workers import framing

CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Event:
    """A message, or the end of a side.

    Attributes:
      source: ``child`` or ``guard``.
      message: the message; None if that side closed its end, or sent something that is not a message.
      broken: why nothing more can come from this side; empty if it just closed.
    """

    source: str
    message: Any
    broken: str = ""


class Connection:
    """Two sockets, neither of which ever blocks the parent."""

    def __init__(self, child: socket.socket, guard: socket.socket) -> None:
        self._sockets = {"child": child, "guard": guard}
        self._readers = {"child": framing.FrameReader(), "guard": framing.FrameReader()}
        self._outgoing = {"child": bytearray(), "guard": bytearray()}
        self._open = {"child", "guard"}
        self._partial = False  # whether the last read brought bytes, though perhaps no whole message
        for side in self._sockets.values():
            side.setblocking(False)

    def send(self, message: Any, *, to: str = "child") -> None:
        """Sends as much as the socket accepts now; the rest is sent during :meth:`poll`."""
        self._outgoing[to] += framing.encode(message)
        self._flush(to)

    def poll(self, deadline: float | None, needed: int | None = None) -> list[Event]:
        """Waits until something arrives, and returns it.

        Args:
          deadline: on :func:`time.monotonic`'s clock; None to wait as long as it takes.
          needed: a descriptor that also ends the wait, as soon as it is readable.

        Returns:
          What arrived, in order for each side; nothing if the deadline passed or only a part of a message came.
        """
        with selectors.PollSelector() as selector:
            for name in self._open:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing[name] else 0)
                selector.register(self._sockets[name], wanted, name)
            if needed is not None:
                selector.register(needed, selectors.EVENT_READ)
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._open:
                # Nothing can arrive any more; the caller still waits for its deadline, and never for ever.
                if timeout is None:
                    raise RuntimeError("waiting without a limit on a closed connection")
                time.sleep(timeout)
                return []
            events: list[Event] = []
            for key, mask in selector.select(timeout):
                if key.data is None:
                    continue
                if mask & selectors.EVENT_WRITE:
                    self._flush(key.data)
                if mask & selectors.EVENT_READ:
                    events += self._read(key.data)
            return events

    def drain(self) -> list[Event]:
        """Returns everything that the child has sent and that has not been read yet."""
        events: list[Event] = []
        while "child" in self._open:
            more = self._read("child")
            if not more and not self._partial:
                break
            events += more
        return events

    def ask_for_end(self) -> None:
        """Tells the guard to kill the run; it reports when that is done."""
        with contextlib.suppress(OSError):  # it is closed, or the guard is gone
            self._sockets["guard"].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes both sockets."""
        self._open.clear()
        for side in self._sockets.values():
            side.close()

    def _flush(self, name: str) -> None:
        outgoing = self._outgoing[name]
        try:
            while outgoing:
                del outgoing[: self._sockets[name].send(memoryview(outgoing)[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # that side is gone, which reading will tell
            outgoing.clear()

    def _read(self, name: str) -> list[Event]:
        self._partial = False
        try:
            data = self._sockets[name].recv(CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._open.discard(name)
            return [Event(name, None)]
        try:
            messages = self._readers[name].feed(data)
        except framing.ProtocolError as error:
            self._open.discard(name)
            return [Event(name, None, str(error))]
        self._partial = True
        return [Event(name, message) for message in messages]
