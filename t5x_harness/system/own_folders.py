"""Temporary folders of processes. Each process locks its folder, so that the folder of a dead process is recognized."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = "lock"


@dataclasses.dataclass
class OwnFolder:
    """A folder for one process.

    Attributes:
      is_kept: whether the folder stays when the process is done with it; the caller may set it.
    """

    path: Path
    is_kept: bool = False


@contextlib.contextmanager
def own_folder(prefix: str, *, last: int = 0) -> Iterator[OwnFolder]:
    """Yields a folder in ``TMPDIR``, which is removed at the end unless ``is_kept`` is set.

    Folders that dead processes of this user have left are removed at the beginning and at the end, except the newest.

    Args:
      prefix: the beginning of the folder's name.
      last: how many folders of dead processes may stay, including this one.

    Raises:
      OSError: the folder cannot be created.
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
    """Locks a folder for as long as this process lives. Child processes do not inherit the lock."""
    making = folder / f"{_LOCK}.new"
    with making.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        making.rename(folder / _LOCK)  # so that an unlocked lock file is never seen
        yield


def _remove_left(parent: Path, prefix: str, last: int) -> None:
    """Removes the folders that dead processes of this user have left, except the last ones."""
    with contextlib.ExitStack() as locks:
        left = []
        for lock in parent.glob(f"{prefix}*/{_LOCK}"):
            with contextlib.suppress(OSError):  # it is in use, or another process is removing it
                state = lock.lstat()
                if state.st_uid != os.geteuid():
                    continue
                file = locks.enter_context(open(os.open(lock, os.O_RDONLY | os.O_NOFOLLOW), "rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.append((state.st_mtime_ns, lock.parent))
        for _, folder in sorted(left)[: max(0, len(left) - last)]:
            shutil.rmtree(folder, ignore_errors=True)
