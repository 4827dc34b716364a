"""Finds and reads gin files in the order in which a T5X binary looks for them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.lint.modules import ModuleFinder

__all__ = ["FileFinder", "FoundFile", "NotAPackage", "NotFound"]


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
    """Gin stops at a folder on the Python path without ``__init__.py`` before it comes to the right folder."""

    folder: str


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
        for prefix in prefixes:
            joined = os.path.join(prefix, target)
            path = self._cwd / joined
            if _is_file(path):
                return self._found(path)
            resource = self._resource(joined)
            if isinstance(resource, NotAPackage):
                return resource
            if resource is not None:
                return self._found(resource)
        return NotFound(tuple(dict.fromkeys(p or "." for p in prefixes)) if not os.path.isabs(target) else ())

    def _found(self, path: Path) -> FoundFile:
        absolute = Path(os.path.normpath(path))
        return FoundFile(absolute, self.shown(absolute))

    def shown(self, path: Path) -> str:
        """A path as users should read it: relative to the working directory where it lies below that."""
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _resource(self, joined: str) -> Path | NotAPackage | None:
        """The file inside a Python package, found by its folder's name as a module."""
        head, name = os.path.split(joined)
        package = head.replace("/", ".")
        if not package or not all(part.isidentifier() for part in package.split(".")):
            return None
        found = self._modules.find(package)
        if found is None:
            return None
        if found.is_namespace:
            return NotAPackage(str(found.folders[0]))
        if found.origin is None:
            return None
        path = found.origin.parent / name
        return path if _is_file(path) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that the file system refuses: too long, or with a null byte
        return False
