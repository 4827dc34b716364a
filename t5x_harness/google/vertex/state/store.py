"""The interface of a state, with the few operations that are atomic in memory and in Redis, and a state in memory."""

import bisect
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class StateError(Exception):
    """The state is not available or is lost, or a key holds another kind of value; the message says which."""


class StateStore(Protocol):
    """Values, lists and sets by key. Every method is atomic, and any thread may call it.

    Every method raises :class:`StateError` if the state is lost, or if a key holds another kind. An empty list or set
    does not exist.
    """

    @property
    def url(self) -> str:
        """The URL at which other processes find the same state; ``memory:`` if none can."""

    def get(self, key: str) -> bytes | None:
        """Returns a value, or None if the key does not exist."""

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns several values, in the order of their keys."""

    def put(self, key: str, value: bytes) -> None:
        """Sets a value, whether or not the key exists."""

    def create(self, key: str, value: bytes) -> bool:
        """Sets a value if the key does not exist; returns whether it did."""

    def update(self, key: str, change: Callable[[bytes], bytes]) -> bytes | None:
        """Replaces a value with the result of ``change`` for it.

        ``change`` is called again after a concurrent write, so it must have no side effects. If it raises an error,
        nothing changes.

        Returns:
          The new value, or None if the key does not exist.
        """

    def delete(self, key: str, check: Callable[[bytes], object] | None = None) -> bool:
        """Removes a key; returns whether it existed.

        Args:
          key: a key of any kind, or of a value if ``check`` is given.
          check: gets the value that is removed. If it raises an error, nothing is removed.
        """

    def keys(self, prefix: str) -> list[str]:
        """Returns all keys with a prefix, sorted by code point."""

    def append(self, key: str, *values: bytes) -> int:
        """Adds to the end of a list; returns its length."""

    def read(self, key: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Returns the elements of a list from ``start`` up to ``stop``, without it; none if the key does not exist."""

    def add(self, key: str, member: str) -> bool:
        """Adds to a set; returns whether the member is new."""

    def discard(self, key: str, member: str) -> bool:
        """Removes from a set; returns whether the member was in it."""

    def members(self, key: str) -> set[str]:
        """Returns all members of a set; none if the key does not exist."""

    def clear(self) -> None:
        """Removes everything."""

    def close(self) -> None:
        """Closes the connection, and ends a server that was started for it."""


Kept = TypeVar("Kept", bytes, list[bytes], set[str])

_NAMES: dict[type, str] = {bytes: "value", list: "list", set: "set"}


class MemoryStore:
    """A :class:`StateStore` of dictionaries under one lock."""

    url = "memory:"

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._kept: dict[str, bytes | list[bytes] | set[str]] = {}
        self._sorted: list[str] = []

    def get(self, key: str) -> bytes | None:
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        with self._mutex:
            return [self._find(key, bytes) for key in keys]

    def put(self, key: str, value: bytes) -> None:
        with self._mutex:
            self._find(key, bytes)
            self._keep(key, value)

    def create(self, key: str, value: bytes) -> bool:
        with self._mutex:
            if key in self._kept:
                return False
            self._keep(key, value)
            return True

    def update(self, key: str, change: Callable[[bytes], bytes]) -> bytes | None:
        with self._mutex:
            value = self._find(key, bytes)
            if value is None:
                return None
            changed = change(value)
            self._keep(key, changed)
            return changed

    def delete(self, key: str, check: Callable[[bytes], object] | None = None) -> bool:
        with self._mutex:
            if check is not None and (value := self._find(key, bytes)) is not None:
                check(value)
            if self._kept.pop(key, None) is None:
                return False
            del self._sorted[bisect.bisect_left(self._sorted, key)]
            return True

    def keys(self, prefix: str) -> list[str]:
        with self._mutex:
            first = last = bisect.bisect_left(self._sorted, prefix)
            while last < len(self._sorted) and self._sorted[last].startswith(prefix):
                last += 1
            return self._sorted[first:last]

    def append(self, key: str, *values: bytes) -> int:
        with self._mutex:
            elements = self._find(key, list) or []
            if values:
                elements.extend(values)
                self._keep(key, elements)
            return len(elements)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        with self._mutex:
            return (self._find(key, list) or [])[start:stop]

    def add(self, key: str, member: str) -> bool:
        with self._mutex:
            elements = self._find(key, set) or set()
            new = member not in elements
            elements.add(member)
            self._keep(key, elements)
            return new

    def discard(self, key: str, member: str) -> bool:
        with self._mutex:
            elements = self._find(key, set) or set()
            if member not in elements:
                return False
            elements.remove(member)
            if not elements:
                self.delete(key)
            return True

    def members(self, key: str) -> set[str]:
        with self._mutex:
            return set(self._find(key, set) or ())

    def clear(self) -> None:
        with self._mutex:
            self._kept.clear()
            self._sorted.clear()

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _find(self, key: str, kind: type[Kept]) -> Kept | None:
        value = self._kept.get(key)
        if value is not None and not isinstance(value, kind):
            raise StateError(f"{key} holds a {_NAMES[type(value)]}, not a {_NAMES[kind]}")
        return value

    def _keep(self, key: str, value: bytes | list[bytes] | set[str]) -> None:
        if key not in self._kept:
            bisect.insort(self._sorted, key)
        self._kept[key] = value
