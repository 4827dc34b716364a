"""The copy of a user's buckets that an emulated Google Cloud begins with."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def copy_buckets(source: str | os.PathLike[str], buckets: Path) -> None:
    """Copies a folder that has a folder for each bucket.

    The copy is writable where the original is not: in a run, files that the user has protected are objects like any
    other.

    Args:
      source: the user's folder; it is not written to.
      buckets: where the copy goes; may be there already.

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
    """Returns what the store takes for no object either.

    Pipes, and links that lead nowhere or to a folder above them.
    """
    above = {os.path.realpath(each) for each in (Path(folder), *Path(folder).parents)}

    def is_kept(path: str) -> bool:
        return os.path.isfile(path) or (os.path.isdir(path) and os.path.realpath(path) not in above)

    return [name for name in names if not is_kept(os.path.join(folder, name))]
