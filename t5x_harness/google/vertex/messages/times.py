"""Times and durations of a request: protobuf's messages hold some that JSON, and a clock, have no form for."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.paths import is_map, is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation

_TIMES = ("google.protobuf.Duration", "google.protobuf.Timestamp")


def check_times(request: Message) -> None:
    """Raises ApiError, INVALID_ARGUMENT with all of them, for times and durations out of protobuf's own range."""
    if violations := list(_wrong(request, "")):
        raise ApiError.of_violations(violations)


def _wrong(message: Any, at: str) -> Iterator[FieldViolation]:
    if message.DESCRIPTOR.full_name in _TIMES:
        try:
            message.ToJsonString()
        except ValueError as error:
            yield FieldViolation(at, str(error))
        return
    if not _holds_times(message.DESCRIPTOR):
        return
    for field, value in message.ListFields():
        if field.message_type is None or not _holds_times(field.message_type):
            continue
        path = f"{at}.{field.name}" if at else field.name
        entries: Iterable[tuple[str, Any]]
        if is_map(field):
            entries = ((f"{path}[{key!r}]", each) for key, each in value.items())
        elif is_repeated(field):
            entries = ((f"{path}[{number}]", each) for number, each in enumerate(value))
        else:
            entries = ((path, value),)
        for where, each in entries:
            if isinstance(each, Message):
                yield from _wrong(each, where)


@functools.cache
def _holds_times(descriptor: Any) -> bool:
    """Returns whether messages of this type may hold a time, however deep."""
    seen: set[str] = set()
    left = [descriptor]
    while left:
        each = left.pop()
        if each.full_name in _TIMES:
            return True
        if each.full_name not in seen:
            seen.add(each.full_name)
            left += [field.message_type for field in each.fields if field.message_type is not None]
    return False
