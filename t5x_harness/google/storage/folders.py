"""Folders of the tree: one that object names imply is removed with the last object, one that someone made stays."""

from __future__ import annotations

import errno
import os
import stat
from typing import AnyStr

from t5x_harness.google.storage.tree import NO_FILE

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
    """Removes an empty folder; returns False if it stays.

    Args:
      path: the folder.
      implied: whether a folder that someone made stays.
    """
    try:
        if implied and not os.stat(path).st_mode & stat.S_ISVTX:
            return False
        os.rmdir(path)
    except OSError:
        return False
    return True
