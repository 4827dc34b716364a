"""Finds and reads gin files in the order in which a T5X binary looks for them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.lint.modules import FoundModule, ModuleFinder

__all__ = ["FileFinder", "FoundFile", "NotAPackage", "NotFound", "is_file"]


@dataclasses.dataclass(frozen=True)
class FoundFile:
    """A gin file: its absolute path, and the name to show for it."""

    path: Path
    shown: str


@dataclasses.dataclass(frozen=True)
class NotFound:
    """No such file; the folders that were searched, in order."""

    searched: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class NotAPackage:
    """Gin stops at a folder on the Python path without ``__init__.py`` before it comes to the file.

    Attributes:
      folder: where it stops.
      file: the file that it would have come to.
    """

    folder: str
    file: str


class FileFinder:
    """Looks up a gin file as T5X and Gin do together.

    The order: the working directory, the search paths, the folder that holds the package ``t5x``; and in each of
    them first the file itself, then the file as a resource of a Python package.

    Args:
      cwd: the run's working directory.
      search_paths: as ``--gin_search_paths``; empty means T5X's default, the working directory.
      t5x_parent: folder that holds the package ``t5x`` in use.
      modules: finds the packages.
    """

    def __init__(self, cwd: Path, search_paths: Sequence[str], t5x_parent: Path | None, modules: ModuleFinder) -> None:
        self._cwd = cwd
        self._prefixes = ("", *(search_paths or ["."]), *([str(t5x_parent)] if t5x_parent else []))
        self._modules = modules

    def find(self, target: str) -> FoundFile | NotFound | NotAPackage:
        """Looks up one file; the first match wins."""
        prefixes = ("",) if os.path.isabs(target) else self._prefixes
        stop: Path | None = None
        for prefix in prefixes:
            joined = os.path.join(prefix, target)
            path = self._cwd / joined
            file = path if is_file(path) else None
            if file is None and (package := self._package(joined)) is not None:
                if package.is_namespace:
                    stop = stop or package.folders[0]
                else:
                    file = _resource(package, joined)
            if file is not None:
                found = self._found(file)
                return found if stop is None else NotAPackage(self.shown(stop), found.shown)
        return NotFound(tuple(dict.fromkeys(p or "." for p in prefixes)) if not os.path.isabs(target) else ())

    def _found(self, path: Path) -> FoundFile:
        absolute = Path(os.path.normpath(path))
        return FoundFile(absolute, self.shown(absolute))

    def shown(self, path: Path) -> str:
        """A path as users should read it: relative to the working directory where it lies below that."""
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _package(self, joined: str) -> FoundModule | None:
        """The Python package whose name is that of the file's folder."""
        name = os.path.dirname(joined).replace("/", ".")
        if not name or not all(part.isidentifier() for part in name.split(".")):
            return None
        return self._modules.find(name)


def _resource(package: FoundModule, joined: str) -> Path | None:
    """The file beside a package's own ``__init__.py``."""
    if package.origin is None:
        return None
    path = package.origin.parent / os.path.basename(joined)
    return path if is_file(path) else None


def is_file(path: Path) -> bool:
    """Whether there is a file of this name; False for a name that the file system refuses."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or with a null byte
        return False
