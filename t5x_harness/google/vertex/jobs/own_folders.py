"""The folders that a process of a job has for itself: they begin empty, as the file system of a new container does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def make_empty(folders: Iterable[Path]) -> None:
    """Makes folders, or empties them: what the process before this one has left is gone.

    Args:
      folders: all of them; whatever else is at these paths is replaced.

    Raises:
      OSError: what was left cannot be removed.
    """
    for folder in folders:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            _open_up(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True)


def _open_up(folder: Path) -> None:
    """Lets folders be emptied that a process has protected from itself, as pip and Go do with what they keep."""
    for at, names, _ in os.walk(folder):
        for path in (os.path.join(at, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
