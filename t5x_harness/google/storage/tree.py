"""The folder that shows a bucket: which files and folders it has, and which folders names of objects imply."""

import bisect
import contextlib
import dataclasses
import errno
import os
import stat
from typing import AnyStr

from t5x_harness.google.storage.database import Identity
from t5x_harness.google.storage.names import object_fault

NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that mean that the file does not exist; ELOOP is for a link that leads to itself."""


def identity_of(status: os.stat_result) -> Identity:
    """Returns the values that change whenever a file changes."""
    # SQLite's integers are signed, inodes are not.
    return Identity(status.st_ino & 0x7FFF_FFFF_FFFF_FFFF, status.st_size, status.st_mtime_ns)


def identify(path: str) -> Identity | None:
    """Returns the identity of a regular file, or None; raises PermissionError in a folder that may not be entered."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
    return identity_of(status) if stat.S_ISREG(status.st_mode) else None


@dataclasses.dataclass
class _Level:
    """A folder above the walk's position: its name with a slash, and the entries that are still to come."""

    prefix: bytes
    entries: list[bytes]  # folders end in a slash, which sorts them like the names below them
    index: int
    folder: tuple[int, int]


class TreeWalk:
    """Walks the files below a folder in the order of their names' bytes, and can jump ahead.

    It skips names that Google would refuse, links to a folder that the walk is already in, dangling links, and folders
    that may not be read.
    """

    def __init__(self, folder: str) -> None:
        self._root = os.fsencode(folder)
        self._stack: list[_Level] = []
        self._enter(b"")

    def next_from(self, start: bytes) -> str | None:
        """Returns the next file whose name is not before ``start``, or None after the last."""
        while self._stack:
            level = self._stack[-1]
            if start.startswith(level.prefix):
                rest = start[len(level.prefix) :]
                # The entry before may be a folder that holds ``start``.
                ahead = bisect.bisect_left(level.entries, rest)
                level.index = max(level.index, ahead - 1)
            elif start > level.prefix:  # all remaining entries here come before it
                level.index = len(level.entries)
            if level.index == len(level.entries):
                self._stack.pop()
                continue
            name = level.prefix + level.entries[level.index]
            level.index += 1
            if name.endswith(b"/"):
                if name >= start or start.startswith(name):
                    self._enter(name)
            elif name >= start:
                with contextlib.suppress(UnicodeDecodeError):
                    text = name.decode()
                    if object_fault(text) is None:
                        return text
        return None

    def _enter(self, prefix: bytes) -> None:
        path = os.path.join(self._root, prefix)
        try:
            status = os.stat(path)
            folder = (status.st_dev, status.st_ino)
            if any(level.folder == folder for level in self._stack):
                return
            with os.scandir(path) as entries:
                names = [name for entry in entries if (name := _name_in_order(entry)) is not None]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # it was removed meanwhile, or may not be read
        names.sort()
        self._stack.append(_Level(prefix, names, 0, folder))


def _name_in_order(entry: os.DirEntry[bytes]) -> bytes | None:
    """Returns the name of a file, or of a folder with a slash; None for anything else."""
    try:
        if entry.is_dir():
            return entry.name + b"/"
        return entry.name if entry.is_file() else None
    except OSError:  # a link whose target cannot be examined
        return None


# The sticky bit marks an implied folder: mkdir sets it in the same call, it survives a kill, and it means nothing to
# the one account that the users of a store share.
_IMPLIED = stat.S_ISVTX | 0o777


def make_folders(path: AnyStr) -> bool:
    """Makes the folders that an object's name implies; returns False if a file is in the way."""
    if os.path.isdir(path):
        return True
    try:
        _make(path)
    except OSError as error:
        if error.errno in (errno.EEXIST, *NO_FILE):
            return False
        raise
    return True


def _make(path: AnyStr) -> None:
    try:
        os.mkdir(path, _IMPLIED)
    except FileNotFoundError:
        _make(os.path.dirname(path))
        _make(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def remove_folder(path: str, *, implied: bool = True) -> bool:
    """Removes an empty folder, with ``implied`` only one that no one created; returns False if it stays."""
    try:
        if implied and not os.stat(path).st_mode & stat.S_ISVTX:
            return False
        os.rmdir(path)
    except OSError:
        return False
    return True
