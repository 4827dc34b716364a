"""Messages over a stream socket: a length of four bytes, big-endian, then that many bytes of JSON.

It is the JSON of Python's ``json`` module: NaN and infinities pass, tuples arrive as lists, and numeric keys
arrive as strings.
"""

import contextlib
import dataclasses
import json
import selectors
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

HEADER = struct.Struct(">I")
CHUNK = 1 << 20
# Far larger than any report, far smaller than most garbled lengths, for which a reader would wait.
LARGEST_FRAME = 1 << 30


class ProtocolError(Exception):
    """The bytes that arrived are not a valid message."""


def encode(message: Any) -> bytes:
    """Turns a JSON value into one frame.

    Raises:
      TypeError: the value contains something that JSON cannot represent.
      ValueError: the value contains itself, or its text is 1 GiB or longer.
    """
    payload = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(payload) >= LARGEST_FRAME:
        raise ValueError(f"a message of {len(payload)} bytes is too large; write it to a file and pass its path")
    return HEADER.pack(len(payload)) + payload


class FrameReader:
    """Reassembles frames from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Takes the next bytes and returns the messages that they complete, in order.

        Raises:
          ProtocolError: the bytes are not a frame; the stream can no longer be used.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            if length >= LARGEST_FRAME:
                raise ProtocolError(f"a frame claims {length} bytes")
            end = HEADER.size + length
            if len(self._buffer) < end:
                break
            try:
                messages.append(json.loads(self._buffer[HEADER.size : end]))
            except (ValueError, RecursionError) as error:
                raise ProtocolError(f"a frame holds no JSON: {error}") from None
            del self._buffer[:end]
        return messages


class Channel:
    """The child's blocking end of a connection: any thread may send, and one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = FrameReader()
        self._received: list[Any] = []
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Sends one whole message, never interleaved with another thread's."""
        frame = encode(message)
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> Any:
        """Waits for the next message.

        Raises:
          EOFError: the other side closed the connection.
        """
        while not self._received:
            data = self._socket.recv(CHUNK)
            if not data:
                raise EOFError("the connection was closed")
            self._received += self._reader.feed(data)
        return self._received.pop(0)


@dataclasses.dataclass(frozen=True)
class Event:
    """A message from one side, or that side's end.

    Attributes:
      source: ``child`` or ``guard``.
      message: the message; None if that side closed its end, or sent something that is not a message.
      broken: the reason that no more can come from this side; empty if it just closed.
    """

    source: str
    message: Any
    broken: str = ""


class Connection:
    """Two sockets, neither of which ever blocks the parent."""

    def __init__(self, child: socket.socket, guard: socket.socket) -> None:
        self._sockets = {"child": child, "guard": guard}
        self._readers = {"child": FrameReader(), "guard": FrameReader()}
        self._outgoing = {"child": bytearray(), "guard": bytearray()}
        self._open = {"child", "guard"}
        self._partial = False  # whether the last read brought bytes, though perhaps no whole message
        for side in self._sockets.values():
            side.setblocking(False)

    def send(self, message: Any, *, to: str = "child") -> None:
        """Sends as much as the socket accepts now; the rest is sent during :meth:`poll`."""
        self._outgoing[to] += encode(message)
        self._flush(to)

    def poll(self, deadline: float | None, needed: int | None = None) -> list[Event]:
        """Waits until something arrives, and returns it.

        Args:
          deadline: a time on :func:`time.monotonic`'s clock; None to wait as long as it takes.
          needed: a descriptor that also ends the wait as soon as it is readable.

        Returns:
          The messages that arrived, in order for each side; none if the deadline passed or only a part of one came.
        """
        with selectors.PollSelector() as selector:
            for name in self._open:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing[name] else 0)
                selector.register(self._sockets[name], wanted, name)
            if needed is not None:
                selector.register(needed, selectors.EVENT_READ)
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._open:
                # Nothing more can arrive; the caller still waits for its deadline, but never forever.
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
        """Tells the guard to kill the run; the guard reports when that is done."""
        with contextlib.suppress(OSError):  # the socket is closed, or the guard is gone
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
        except OSError:  # that side is gone, which the next read will show
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
        except ProtocolError as error:
            self._open.discard(name)
            return [Event(name, None, str(error))]
        self._partial = True
        return [Event(name, message) for message in messages]


def not_json(value: Any, place: str = "value", around: tuple[int, ...] = ()) -> str | None:
    """Finds a part of a value that JSON cannot represent.

    Args:
      value: any Python object.
      place: the value's name in the answer.
      around: the ids of the values that contain it.

    Returns:
      The place and type of the first such part, such as ``float32 at value['loss'][0]``; None if there is
      none.
    """
    if value is None or isinstance(value, str | int | float):
        return None
    if id(value) in around:
        return f"{type(value).__qualname__} that contains itself at {place}"
    parts: list[tuple[str, Any]]
    if isinstance(value, dict):
        for key in value:
            if key is not None and not isinstance(key, str | int | float):
                return f"{type(key).__qualname__} as a key of {place}"
        parts = [(f"{place}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{place}[{index}]", part) for index, part in enumerate(value)]
    else:
        hint = " (a Mapping, but not a dict)" if isinstance(value, Mapping) else ""
        return f"{type(value).__qualname__}{hint} at {place}"
    for inner_place, part in parts:
        if found := not_json(part, inner_place, (*around, id(value))):
            return found
    return None
