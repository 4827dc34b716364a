"""A log on standard error for things that may happen thousands of times a second."""

from __future__ import annotations

import sys
import time

from t5x_harness.google.product import PRODUCT


class ThrottledLog:
    """Writes at most one line a second, and counts the lines that it leaves out."""

    def __init__(self) -> None:
        self._next = 0.0
        self._left_out = 0

    def write(self, text: str) -> None:
        """Writes a line, or counts it for the next line that is written."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" (and {self._left_out} more such lines since the last one)" if self._left_out else ""
        print(f"{PRODUCT}: {text}{more}", file=sys.stderr, flush=True)
        self._next, self._left_out = now + 1.0, 0
