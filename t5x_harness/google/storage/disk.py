"""The disk under a store: the files in its folder, its locks, its errors, and a reserve for when it is full.

<root>/buckets/<bucket>/<name>   the objects whose names a folder can hold: the tree that ``/gcs`` shows
<root>/.PRODUCT/storage.db   records of buckets, objects and uploads
<root>/.PRODUCT/incoming/    bodies on their way in
<root>/.PRODUCT/aside/       bodies of objects that the tree cannot hold
<root>/.PRODUCT/lock         the process that has the store open
<root>/.PRODUCT/reserve      space that is freed when the disk is full, so that objects can be read and deleted
"""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import sys
from pathlib import Path

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import DiskRefused, Forbidden, InUse, StoreError, WouldWait

_LONGEST_PATH = 4095  # Linux' PATH_MAX without its NUL


class StoreLayout:
    """The paths of a store, whose folders are made if they do not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.buckets = str(self.root / "buckets")
        private = self.root / f".{PRODUCT}"
        self.database = private / "storage.db"
        self.lock = private / "lock"
        self.reserve = private / "reserve"
        self.incoming = str(private / "incoming")
        self.aside = str(private / "aside")
        for folder in (self.buckets, self.incoming, self.aside):
            os.makedirs(folder, exist_ok=True)
        self._longest_part = os.pathconf(self.buckets, "PC_NAME_MAX")

    def tree_path(self, bucket: str, name: str) -> str | None:
        """Returns the path at which the tree shows an object as a file, or None if no file can have its name."""
        fits = "\0" not in name and all(
            part not in ("", ".", "..")
            and (len(part) * 4 <= self._longest_part or len(part.encode()) <= self._longest_part)
            for part in name.split("/")
        )
        if not fits:
            return None
        path = f"{self.buckets}/{bucket}/{name}"
        return path if len(path) * 4 <= _LONGEST_PATH or len(os.fsencode(path)) <= _LONGEST_PATH else None

    def folder_path(self, bucket: str, name: str) -> str | None:
        """Returns the path at which the tree shows an object such as ``a/b/`` as a folder, or None for other names."""
        return self.tree_path(bucket, name[:-1]) if name.endswith("/") else None


class FolderLock:
    """Holds a lock file until it is released or the process ends in any way; raises InUse if another process holds it.

    The file stays, with the pid and command of its last holder.
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
        with contextlib.suppress(OSError):  # the disk may be full, which does not prevent reading
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

    A context manager that one thread at a time may enter, repeatedly. The descriptor is not kept, because it would
    continue to lock a folder that is no longer at the root's path.

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


_RESERVED = 256 << 10  # bytes: enough for a few dozen changes of the database
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
        """Occupies the space again, as far as the disk has room."""
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
        """Frees the space; returns False if it was not occupied."""
        self._whole = False
        try:
            size = os.stat(self._path).st_size
            os.unlink(self._path)
        except OSError:
            return False
        return size > 0
