"""Resources: messages under their full names, with the times and etags that a service sets."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import is_resource, parent_of
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, not_found

_STEP = 1_000  # services tell microseconds


class Clock:
    """Tells the time in whole microseconds, later each time that it is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def now(self) -> int:
        """Nanoseconds since 1970."""
        with self._lock:
            self._last = max(time.time_ns() // _STEP * _STEP, self._last + _STEP)
            return self._last


Kept = TypeVar("Kept", bound=Message)


def aspect_key(name: str, aspect: str) -> str:
    """Returns the key in the state for something of a resource, which goes when the resource is deleted.

    Args:
      aspect: such as ``points`` or ``log/workerpool0-0``.
    """
    return f"{name}#{aspect}"


class Resources:
    """Messages by their full names, with their projects' numbers, as the wire has them.

    Args:
      state: keeps them, each at the key that is its name.
    """

    def __init__(self, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def create(self, name: str, message: Kept) -> Kept:
        """Keeps a new resource.

        Args:
          message: its fields; it is not changed.

        Returns:
          The resource with name, times and etag.

        Raises:
          ApiError: ALREADY_EXISTS. NOT_FOUND: that of the resource that it is below.
        """
        made: Kept = type(message)()
        made.CopyFrom(message)
        _set(made, "name", name)
        self._stamp(made, "create_time", "update_time")
        if not self._state.create(name, made.SerializeToString()):
            raise ApiError(StatusCode.ALREADY_EXISTS, f"{made.DESCRIPTOR.name} with name {name} already exists")
        if is_resource(parent := parent_of(name)) and not self.exists(parent):
            # It was deleted meanwhile, and what looked for the resources below it may have passed this one over.
            self._state.delete(name)
            raise not_found(parent)
        return made

    def get(self, name: str, kind: type[Kept]) -> Kept:
        """Returns a resource; raises ApiError (NOT_FOUND)."""
        data = self._state.get(name)
        if data is None:
            raise not_found(name)
        return _read(kind, data)

    def find(self, name: str, kind: type[Kept]) -> Kept | None:
        """Returns a resource; None if it is not there."""
        data = self._state.get(name)
        return None if data is None else _read(kind, data)

    def exists(self, name: str) -> bool:
        return self._state.get(name) is not None

    def update(self, name: str, kind: type[Kept], change: Callable[[Kept], object]) -> Kept:
        """Changes a resource with nobody else's change in between; sets its time and etag.

        Args:
          change: changes the message that it is given; is called again if somebody else was faster. What it raises is
            raised, and nothing changes.

        Raises:
          ApiError: NOT_FOUND.
        """

        def changed(data: bytes) -> bytes:
            message = _read(kind, data)
            change(message)
            self._stamp(message, "update_time")
            found: bytes = message.SerializeToString()
            return found

        data = self._state.update(name, changed)
        if data is None:
            raise not_found(name)
        return _read(kind, data)

    def delete(self, name: str, check: Callable[[bytes], object] | None = None) -> None:
        """Removes a resource, those below it, and what belongs to any of them (see :func:`aspect_key`).

        Args:
          check: is given the resource's bytes, with nobody else's change in between; what it raises is raised, and
            nothing is removed.

        Raises:
          ApiError: NOT_FOUND.
        """
        if not self._state.delete(name, check):
            raise not_found(name)
        for key in [*self._state.keys(f"{name}/"), *self._state.keys(f"{name}#")]:
            self._state.delete(key)

    def names(self, parent: str, collection: str) -> list[str]:
        """Returns the full names of the resources of a collection, by code point.

        Args:
          parent: its name, in which ``-`` stands for any, as in ``projects/1/locations/l/tensorboards/-``.
          collection: such as ``customJobs``.
        """
        pattern = re.compile(re.escape(parent).replace(r"/\-", r"/[^/#]+") + f"/{collection}/[^/#]+")
        known = f"{parent}/{collection}/".split("/-/")[0].removesuffix("/")
        return [key for key in self._state.keys(f"{known}/") if pattern.fullmatch(key)]

    def list(self, parent: str, collection: str, kind: type[Kept]) -> list[Kept]:
        """Returns the resources of a collection, by name; for the arguments see :meth:`names`."""
        found = self._state.get_all(self.names(parent, collection))
        return [_read(kind, data) for data in found if data is not None]

    def _stamp(self, message: Message, *times: str) -> None:
        now = self._clock.now()
        for field in times:
            if field in message.DESCRIPTOR.fields_by_name:
                getattr(message, field).FromNanoseconds(now)
        _set(message, "etag", str(now // 1_000))


def _read(kind: type[Kept], data: bytes) -> Kept:
    found: Kept = kind.FromString(data)
    return found


def _set(message: Message, field: str, value: Any) -> None:
    if field in message.DESCRIPTOR.fields_by_name:
        setattr(cast(Any, message), field, value)
