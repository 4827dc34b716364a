"""Reads scalars from TensorBoard's event files, without TensorFlow.

A file is a sequence of records: the length of a serialized Event in eight bytes, its checksum in four, the Event, and
the Event's checksum in four. The file of a running job may end within a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_HEADER = struct.Struct("<Q4x")
_FOOTER = 4


def scalars_of(content: bytes) -> Iterator[tuple[str, int, float]]:
    """Yields tag, step and value of every scalar in an event file, in the order in which they were written.

    Args:
      content: the file, or as much of it as has been written.

    Raises:
      ImportError: the package tensorboard is not installed.
    """
    from tensorboard.compat.proto import event_pb2

    for record in _records(content):
        event = event_pb2.Event.FromString(record)
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                yield value.tag, event.step, number


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEADER.size <= len(content):
        (length,) = _HEADER.unpack_from(content, at)
        begin = at + _HEADER.size
        if begin + length + _FOOTER > len(content):
            return
        yield content[begin : begin + length]
        at = begin + length + _FOOTER


def _number(value: Any) -> float | None:
    """Returns a summary value as a number, or None if it is text, an image or a histogram."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor"):
        from tensorboard.util import tensor_util

        array = tensor_util.make_ndarray(value.tensor)
        if array.ndim == 0 and array.dtype.kind in "fiub":
            return float(array)
    return None
