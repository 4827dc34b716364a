"""The interface of state: the few operations that are atomic both in memory and in Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


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
        """Replaces a value with what ``change`` returns for it.

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
