"""Folders of the tree: those that the names of objects imply go with the last object, those that somebody made stay."""

from __future__ import annotations

import errno
import os
import stat
from typing import AnyStr

from t5x_harness.google.storage.tree import NO_FILE

# The sticky bit marks what is implied: mkdir takes it in one call, it survives a kill, and users of one store share
# one account, to whom it means nothing.
_IMPLIED = stat.S_ISVTX | 0o777


def make_folders(path: AnyStr) -> bool:
    """Makes a folder and those above it, as the name of an object implies them; False if a file is in the way."""
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
    """Removes a folder that is empty; False if it stays.

    Args:
      implied: whether to leave one that somebody made.
    """
    try:
        if implied and not os.stat(path).st_mode & stat.S_ISVTX:
            return False
        os.rmdir(path)
    except OSError:
        return False
    return True
