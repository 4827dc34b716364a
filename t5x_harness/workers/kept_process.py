"""How long a worker that its session has left stays: until it is idle, outdated, in the way, or asked to end."""

import time
from pathlib import Path

from t5x_harness.system.memory import available_bytes
from t5x_harness.workers.keeping import KEEP_SECONDS, KeptPlace
from t5x_harness.workers.listener import Listener

_LOOK_SECONDS = 10.0  # a look at the files of five thousand modules takes 35 ms
_LEAST_FREE = 1 << 30
"""The bytes that must be free on the machine; a worker has about half of that for itself."""


class KeptProcess:
    """The end of a worker that has no session of its own any more.

    Args:
      listener: what admits sessions.
      path: its socket, which the end removes.
      seconds: how long it waits for the next session.
    """

    def __init__(self, listener: Listener, path: Path, seconds: float = KEEP_SECONDS) -> None:
        self._listener = listener
        self._path = path
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._look_at = time.monotonic() + _LOOK_SECONDS

    @property
    def patience(self) -> float:
        """The seconds until :meth:`is_over` is to be asked again."""
        return max(0.0, min(self._until, self._look_at) - time.monotonic())

    def is_over(self, *, used: bool) -> bool:
        """Returns whether it is time to end.

        Args:
          used: whether sessions use it, which therefore begins to wait anew when they have ended.
        """
        now = time.monotonic()
        if used:
            self._until = now + self._seconds
            return False
        if self._listener.is_stopped or self._listener.changed or now >= self._until:
            return True
        if now < self._look_at:
            return False
        self._look_at = now + _LOOK_SECONDS
        is_lost = not self._path.exists()  # somebody has cleaned up TMPDIR, so no session can find it
        return is_lost or bool(self._listener.changed_file()) or available_bytes() < _LEAST_FREE

    def remove(self) -> None:
        """Removes its socket."""
        KeptPlace(self._path.parent).remove(self._path)
