"""The copy of a user's buckets with which an emulated Google Cloud begins."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def copy_buckets(source: str | os.PathLike[str], buckets: Path) -> None:
    """Copies a folder that has a folder for each bucket.

    The copy is writable even if the original is not, because files that the user has protected are ordinary objects
    in a run.

    Args:
      source: the user's folder, which is only read.
      buckets: the destination, which may exist.

    Raises:
      OSError: the user's folder cannot be read.
    """
    shutil.copytree(source, buckets, dirs_exist_ok=True, ignore=_not_objects)
    for folder, _, files in os.walk(buckets):
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
        for name in files:
            path = os.path.join(folder, name)
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if not mode & stat.S_IWUSR:
                os.chmod(path, mode | stat.S_IWUSR)


def _not_objects(folder: str, names: list[str]) -> list[str]:
    """Returns the names that are not objects for the store either: pipes, dangling links and links to folders above."""
    above = {os.path.realpath(each) for each in (Path(folder), *Path(folder).parents)}

    def is_kept(path: str) -> bool:
        return os.path.isfile(path) or (os.path.isdir(path) and os.path.realpath(path) not in above)

    return [name for name in names if not is_kept(os.path.join(folder, name))]
