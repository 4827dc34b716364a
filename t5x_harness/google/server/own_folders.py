"""Folders of processes: each is locked by its own, so that one whose process is gone is known, and removed in time."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.google.product import PRODUCT

SERVERS = f"{PRODUCT}-google-"
"""How the names of servers' folders begin."""

_LOCK = "lock"


@dataclasses.dataclass
class OwnFolder:
    """A folder for one process.

    Attributes:
      is_kept: whether it stays when the process is done with it; to be set.
    """

    path: Path
    is_kept: bool = False


@contextlib.contextmanager
def own_folder(prefix: str, *, last: int = 0) -> Iterator[OwnFolder]:
    """Yields a folder in ``TMPDIR``, removed at the end unless it is to be kept.

    Those that this user's processes have left are removed, at the beginning and at the end, but the last ones.

    Args:
      prefix: how its name begins.
      last: how many of those that are left may stay, this one included.

    Raises:
      OSError: it cannot be made.
    """
    parent = Path(tempfile.gettempdir())
    _remove_left(parent, prefix, last)
    folder = OwnFolder(Path(tempfile.mkdtemp(prefix=prefix)))
    try:
        with _locked(folder.path):
            yield folder
    finally:
        if folder.is_kept:
            _remove_left(parent, prefix, last)
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder for as long as this process lives; what it starts does not inherit the lock."""
    making = folder / f"{_LOCK}.new"
    with making.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        making.rename(folder / _LOCK)  # it is never there without being locked
        yield


def _remove_left(parent: Path, prefix: str, last: int) -> None:
    """Removes the folders that this user's processes have left, but the last ones; those of others are locked."""
    with contextlib.ExitStack() as locks:
        left = []
        for lock in parent.glob(f"{prefix}*/{_LOCK}"):
            with contextlib.suppress(OSError):  # it is in use, or another process removes it, too
                state = lock.lstat()
                if state.st_uid != os.geteuid():
                    continue
                file = locks.enter_context(open(os.open(lock, os.O_RDONLY | os.O_NOFOLLOW), "rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.append((state.st_mtime_ns, lock.parent))
        for _, folder in sorted(left)[: max(0, len(left) - last)]:
            shutil.rmtree(folder, ignore_errors=True)
