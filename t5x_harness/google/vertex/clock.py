"""Times of resources: no two are the same, so that they sort as they were made and etags differ."""

from __future__ import annotations

import threading
import time

__all__ = ["Clock"]

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
