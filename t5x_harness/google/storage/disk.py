"""The disk under a store: its errors in words, and a reserve of space for when it is full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from pathlib import Path

from t5x_harness.google.storage.errors import DiskRefused, Forbidden, StoreError

_RESERVED = 256 << 10  # bytes: some dozens of changes of the database
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: Exception) -> bool:
    """Tells whether an error means that a disk is full."""
    if isinstance(error, sqlite3.Error):
        # SQLite reports an input/output error if it cannot extend its log.
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in _FULL


def refusal(error: OSError | sqlite3.Error, root: Path) -> StoreError:
    """Returns the answer to a request that failed because of the disk under a store."""
    if isinstance(error, PermissionError):
        return Forbidden(f"{error.filename or root}: {error.strerror}")
    if is_full(error):
        with contextlib.suppress(OSError):
            if not isinstance(error, sqlite3.Error) or shutil.disk_usage(root).free < _RESERVED:
                return DiskRefused(
                    f"no space left in {root}, where this emulated Cloud Storage keeps its buckets: remove files or "
                    "objects, or serve another folder"
                )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return DiskRefused(f"{root}, where this emulated Cloud Storage keeps its buckets: {reason}")


class Reserve:
    """A file that occupies some space, which is freed when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole = False

    def refill(self) -> None:
        """Occupies the space again, as far as the disk has any."""
        if self._whole:
            return
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                missing = _RESERVED - os.fstat(fd).st_size
                while missing > 0:
                    missing -= os.pwrite(fd, bytes(min(missing, 1 << 12)), _RESERVED - missing)
                self._whole = True
            finally:
                os.close(fd)

    def give(self) -> bool:
        """Frees the space; returns False if there is none."""
        self._whole = False
        try:
            size = os.stat(self._path).st_size
            os.unlink(self._path)
        except OSError:
            return False
        return size > 0
