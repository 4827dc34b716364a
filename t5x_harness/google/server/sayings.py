"""What a server reports on standard error of things that may happen thousands of times a second."""

from __future__ import annotations

import sys
import time


class Sayings:
    """Lines on standard error, one a second at most: what they tell of may happen thousands of times in one."""

    def __init__(self) -> None:
        self._next = 0.0
        self._unsaid = 0

    def say(self, text: str) -> None:
        """Says it, or counts it for the line that comes next."""
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more such lines since the last one)" if self._unsaid else ""
        print(f"t5x-harness: {text}{more}", file=sys.stderr, flush=True)
        self._next, self._unsaid = now + 1.0, 0
