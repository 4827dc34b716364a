"""Messages over a stream socket: a length of four bytes, big-endian, then that many bytes of JSON.

It is the JSON of Python's ``json``: NaN and the infinities pass, tuples arrive as lists, and keys that are numbers
arrive as strings.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any

HEADER = struct.Struct(">I")
CHUNK = 1 << 20
# Far above any report, far below what a garbled length would make the reader wait for.
LARGEST_FRAME = 1 << 30


class ProtocolError(Exception):
    """The bytes that arrived are not a valid message."""


def encode(message: Any) -> bytes:
    """Turns a JSON value into one frame.

    Raises:
      TypeError: the value holds something that JSON cannot carry.
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
          ProtocolError: the bytes are not a frame; the stream cannot be used any longer.
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

    @property
    def pending(self) -> int:
        """The number of bytes of an unfinished frame."""
        return len(self._buffer)


class Channel:
    """A blocking end of a connection, for the child: any thread may send, one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = FrameReader()
        self._received: list[Any] = []
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Sends one whole message, never mixed with another thread's."""
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


def not_json(value: Any, name: str = "value") -> str | None:
    """Finds a part of a value that JSON cannot represent.

    Args:
      value: any Python object.
      name: the name of the value in the answer.

    Returns:
      The place and type of the first such part, such as ``float32 at value['loss'][0]``; None if there is none.
    """
    return _not_json(value, name, ())


def _not_json(value: Any, place: str, around: tuple[int, ...]) -> str | None:
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
        if found := _not_json(part, inner_place, (*around, id(value))):
            return found
    return None
