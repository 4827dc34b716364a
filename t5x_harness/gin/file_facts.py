"""Facts about the gin files of a folder's configs, each found out once while no file changes."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.gin.files import FileFinder, ModuleFinder

_MOST_BYTES = 1_000_000  # of one file; the config that T5X writes for a whole run has about 20,000
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})


class FileFacts:
    """Where gin files are, what they hold, and to which packages they belong.

    Args:
      cwd: the working directory of the runs, from which the names of files start.
      t5x_parent: the folder that holds the package ``t5x`` in use; None for none.

    Attributes:
      resolved: statements with the meanings of their names, without their places, by the text of their file and their
        indices in it: the class, its further arguments, and the names that they register.
      real_path: returns the real path of a path.
      text: returns the text of a file; raises an OSError if it cannot be read, or is too large for a gin file.
      finder: returns the finder of files for search paths, modules and a folder of buckets.
      is_installed: returns whether a file belongs to T5X or another installed package, so that the user does not
        change it.
      is_of_t5x: returns whether a file is in the package ``t5x``.
      name_of: returns a package's file as includes name it, ``t5x/configs/runs/finetune.gin``; others unchanged.
    """

    def __init__(self, cwd: str, t5x_parent: str | Path | None) -> None:
        self._cwd = cwd
        self._t5x = Path(t5x_parent) / "t5x" if t5x_parent is not None else None
        # The package may be a link to a folder with any name.
        self._package = os.path.realpath(self._t5x) if self._t5x is not None else None
        self.resolved: dict[str, dict[int, tuple[type, tuple[Any, ...], Sequence[tuple[str, str]]]]] = {}
        # What these remember is forgotten together with this object.
        self.real_path: Callable[[Path], str] = functools.cache(os.path.realpath)
        self.text: Callable[[Path], str] = functools.cache(_text)
        self.finder: Callable[[tuple[str, ...], ModuleFinder, Path | None], FileFinder] = functools.cache(self._finder)
        self.is_installed: Callable[[str], bool] = functools.cache(self._is_installed)
        self.is_of_t5x: Callable[[str], bool] = functools.cache(self._is_of_t5x)
        self.name_of: Callable[[str], str] = functools.cache(self._name_of)

    def _finder(self, search_paths: tuple[str, ...], modules: ModuleFinder, buckets: Path | None) -> FileFinder:
        parent = self._t5x.parent if self._t5x is not None else None
        return FileFinder(Path(os.path.abspath(self._cwd)), search_paths, parent, modules, buckets)

    def _is_installed(self, file: str) -> bool:
        path = Path(self.real_path(Path(self._cwd) / file))
        of_t5x = self._package is not None and path.is_relative_to(self._package)
        return of_t5x or not _PACKAGE_FOLDERS.isdisjoint(path.parts)

    def _is_of_t5x(self, file: str) -> bool:
        return self._t5x is not None and (Path(self._cwd).absolute() / file).is_relative_to(self._t5x)

    def _name_of(self, file: str) -> str:
        path = Path(self.real_path(Path(self._cwd) / file))
        if self._package is not None and path.is_relative_to(self._package):
            return str("t5x" / path.relative_to(self._package))
        folder = next((folder for folder in path.parents if folder.name in _PACKAGE_FOLDERS), None)
        return str(path.relative_to(folder)) if folder is not None and self.is_installed(file) else file


def _text(path: Path) -> str:
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise OSError(0, f"it has {size / 1e6:.1f} MB, and lint reads gin files of up to {_MOST_BYTES / 1e6:.0f}")
    return path.read_text(encoding="utf-8")
