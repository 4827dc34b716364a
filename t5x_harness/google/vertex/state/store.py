"""What a place for state can do: the few things that memory and Redis can both do atomically."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class StateError(Exception):
    """The state is not available or is lost, or a key holds another kind of value; the message says which."""


class StateStore(Protocol):
    """Values, lists and sets by key. Every method is atomic, and may be called by any thread.

    Every method raises :class:`StateError` if the state is lost. A key holds one kind; asking it for another raises the
    same. A list or a set without elements is not there.
    """

    @property
    def url(self) -> str:
        """Where others find the same state; ``memory:`` if nobody else can."""

    def get(self, key: str) -> bytes | None:
        """Returns a value; None if the key is not there."""

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns several values at once, in the order of their keys."""

    def put(self, key: str, value: bytes) -> None:
        """Sets a value, whether or not there was one."""

    def create(self, key: str, value: bytes) -> bool:
        """Sets a value only if the key is not there; whether it did."""

    def update(self, key: str, change: Callable[[bytes], bytes]) -> bytes | None:
        """Replaces a value by what ``change`` makes of it, with nobody else's write in between.

        ``change`` is called again when there was one, so it must do nothing but compute. What it raises is raised.

        Returns:
          The new value; None if the key is not there.
        """

    def delete(self, key: str, check: Callable[[bytes], object] | None = None) -> bool:
        """Removes a key with all that it holds; whether it was there.

        Args:
          key: of any kind; of a value if ``check`` is given.
          check: is given the value that is removed, with nobody else's write in between; what it raises is raised, and
            nothing is removed.
        """

    def keys(self, prefix: str) -> list[str]:
        """Returns all keys that begin with a prefix, sorted by code point."""

    def append(self, key: str, *values: bytes) -> int:
        """Adds to the end of a list; returns its length."""

    def read(self, key: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Elements of a list, from ``start`` up to but not including ``stop``, both counted from 0.

        Returns:
          Empty if the key is not there.
        """

    def add(self, key: str, member: str) -> bool:
        """Adds to a set; whether it is new there."""

    def discard(self, key: str, member: str) -> bool:
        """Removes from a set; whether it was there."""

    def members(self, key: str) -> set[str]:
        """Returns all members of a set; empty if the key is not there."""

    def lock(self, name: str, seconds: float) -> AbstractContextManager[bool]:
        """Tries once to take a lock. It is given back at the end of the block, or after ``seconds``.

        Yields:
          Whether it was free.
        """

    def clear(self) -> None:
        """Removes everything."""

    def close(self) -> None:
        """Ends the connection, and with it a server that was started for it."""
