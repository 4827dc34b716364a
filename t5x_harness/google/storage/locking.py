"""Locks: one process serves a folder at a time, and the processes of mounts change files beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path

from t5x_harness.google.storage.errors import InUse, WouldWait


class FolderLock:
    """Holds a lock file until it is released or the process ends in any way.

    Args:
      path: the lock file; it stays, with the pid and command of its last holder.

    Raises:
      InUse: another process holds it.
    """

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0).decode(errors="replace").strip()
            os.close(fd)
            raise InUse(
                f"{path.parent.parent} is being served by {holder or 'another process'}: end it, or name another folder"
            ) from None
        with contextlib.suppress(OSError):  # the disk may be full, which prevents no reading
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} ({' '.join(sys.argv)[:200]})\n".encode(), 0)
        self._fd: int | None = fd

    def release(self) -> None:
        """Releases the lock; a second call does nothing, because the descriptor may be in use again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class FilesLock:
    """Lets one process at a time, the store's or a mount's, look at the file of a name and replace it.

    A context manager that one thread at a time may enter, repeatedly. The descriptor is not kept, because it would go
    on locking a folder that has left the root's path.

    Args:
      root: the root of the store.
      wait: whether to wait for the other process, which takes microseconds. Otherwise entering raises WouldWait.
    """

    def __init__(self, root: Path, *, wait: bool = True) -> None:
        self._root = str(root)
        self._how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB

    def __enter__(self) -> None:
        self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, self._how)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                raise WouldWait from None
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
