"""One process writes in a folder at a time, and a file says which."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from t5x_harness.google.storage.errors import InUse

__all__ = ["FolderLock"]


class FolderLock:
    """Holds a lock file until it is released or the process ends, however it ends.

    Args:
      path: of the lock file; it stays where it is, with the pid and command of its last holder.

    Raises:
      InUse: another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 4096, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise InUse(
                f"{path.parent.parent} is being served by {holder or 'another process'}: end it, or name another folder"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} ({' '.join(sys.argv)[:200]})\n".encode(), 0)

    def release(self) -> None:
        """Lets others in."""
        os.close(self._fd)
