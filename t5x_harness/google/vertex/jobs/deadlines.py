"""Times at which something happens, by name."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

T = TypeVar("T")


class Deadlines(Generic[T]):
    """What is to happen when; each under a name, by which it can be moved or called off."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, T]] = {}

    def set(self, name: str, seconds: float, what: T) -> None:
        """Has something happen in so many seconds."""
        self._at[name] = (time.monotonic() + seconds, what)

    def clear(self, *names: str) -> None:
        """Calls things off; names that are not there are passed over."""
        for name in names:
            self._at.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Whether something of that name is still to come."""
        return name in self._at

    def seconds(self) -> float | None:
        """Until the next one; None if there is none."""
        return max(0.0, min(at for at, _ in self._at.values()) - time.monotonic()) if self._at else None

    def due(self) -> list[T]:
        """Takes out what is due, in the order of its times."""
        now = time.monotonic()
        ready = sorted((at, name) for name, (at, _) in self._at.items() if at <= now)
        return [self._at.pop(name)[1] for _, name in ready]
