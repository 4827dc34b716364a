"""Files of this machine that a job is given, under names that say where they came from."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

from t5x_harness.buckets.folders import StagedFile
from t5x_harness.spec import RunSpec


class ClosureError(ValueError):
    """A file that a job needs cannot be staged; the message names the file, what asks for it, and the fix."""


@dataclasses.dataclass(frozen=True)
class LocalRoots:
    """The folders in which a run's files are looked up. No file is staged through a link that leads out of them.

    Attributes:
      cwd: the working directory, absolute.
      others: folders of gin files and modules, absolute.
    """

    cwd: Path
    others: tuple[Path, ...] = ()

    @classmethod
    def of(cls, spec: RunSpec) -> LocalRoots:
        """Returns the folders of a run."""
        cwd = Path(os.path.abspath(spec.cwd))
        given = (*spec.search_paths, *spec.python_path)
        return cls(cwd, tuple(dict.fromkeys(Path(os.path.abspath(cwd / path)) for path in given if "://" not in path)))

    def name_of(self, file: Path) -> str:
        """Returns a unique name for a file.

        Args:
          file: the absolute path, or a path relative to the working directory.

        Raises:
          ClosureError: the file is behind a link that leads out of the folders.
        """
        path = Path(os.path.abspath(self.cwd / file))
        self.require_inside(path)
        for root in (self.cwd, *self.others):
            if path.is_relative_to(root):
                inside = path.relative_to(root).as_posix()
                return inside if root == self.cwd else f"{_folder_name(root)}/{inside}"
        return f"{_folder_name(path.parent)}/{path.name}"

    def require_inside(self, path: Path) -> None:
        """Refuses a link out of the folders. A file outside of them that the user named is the user's own choice.

        Args:
          path: the absolute path.

        Raises:
          ClosureError: the path is such a link.
        """
        roots = (self.cwd, *self.others)
        real = path.resolve()
        inside = any(path.is_relative_to(root) for root in roots)
        if inside and not any(real.is_relative_to(root.resolve()) for root in roots):
            raise ClosureError(
                f"{path}: this is a link to {real}, outside of the project, and is not staged; put a copy here, or "
                "name its folder in --gin_search_paths or in python_path of the project"
            )


def read_file(path: Path, name: str) -> StagedFile:
    """Returns a file's content, under a name.

    Raises:
      ClosureError: it cannot be read.
    """
    try:
        return StagedFile(name, path.read_bytes())
    except OSError as error:
        raise ClosureError(f"{path}: it cannot be read: {error.strerror}") from None


def _folder_name(folder: Path) -> str:
    """Returns a folder's name with a hash of its path: two folders called ``configs`` differ."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return f"{folder.name or 'root'}-{digest}"
