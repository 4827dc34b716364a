"""Finds Python modules on disk without importing anything, not even the packages above them."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.spec import RunSpec
from t5x_harness.version import ORIGIN


def module_path(spec: RunSpec) -> tuple[Path, ...]:
    """Returns the folders in which a run's Python looks for modules, in order."""
    cwd = Path(os.path.abspath(spec.cwd))
    return (*(cwd / p for p in spec.python_path), cwd, *(Path(p) for p in sys.path if p))


@dataclasses.dataclass(frozen=True)
class FoundModule:
    """Where a module lives.

    Attributes:
      origin: its file (``__init__.py`` for a package); None for a namespace package, a built-in and other modules
        that have no file.
      folders: where its submodules are looked up; empty for a plain module.
    """

    origin: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def is_namespace(self) -> bool:
        """Whether it is a folder without ``__init__.py``."""
        return self.origin is None and bool(self.folders)


class ModuleFinder:
    """Looks up modules as Python would in a run of the config.

    Args:
      path: folders in the order in which Python searches them; entries that are not folders are passed over.
      t5x_parent: folder that holds the package ``t5x`` in use; it wins for that name.
    """

    def __init__(self, path: Sequence[str | Path], t5x_parent: Path | None) -> None:
        self._path = tuple(Path(p) for p in path)
        self._t5x_parent = t5x_parent
        self._found: dict[str, FoundModule | None] = {}

    def find(self, name: str) -> FoundModule | None:
        """Finds a module by its full name; None if Python would not find it."""
        if name not in self._found:
            self._found[name] = self._search(name)
        return self._found[name]

    def missing_part(self, name: str) -> str:
        """Returns the first component of a dotted name that is not found: ``t5.datta`` for ``t5.datta.mixtures``."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            if self.find(".".join(parts[:count])) is None:
                return ".".join(parts[:count])
        return name

    def beside(self, name: str) -> tuple[str, ...]:
        """Returns the modules that lie where one of this full name would."""
        package, _, _ = name.rpartition(".")
        parent = self.find(package) if package else None
        folders = self._path if not package else parent.folders if parent is not None else ()
        names = (entry for folder in folders for entry in _names_in(folder))
        return tuple(dict.fromkeys(f"{package}.{entry}" if package else entry for entry in names))

    def _search(self, name: str) -> FoundModule | None:
        parent_name, _, last = name.rpartition(".")
        if parent_name:
            parent = self.find(parent_name)
            if parent is None:
                return None
            return (
                _look_in(parent.folders, last)
                or (_ask_finders(name, parent.folders) if parent.folders else None)
                or (
                    FoundModule(None) if sys.modules.get(name) else None
                )  # an attribute, such as os.path, once imported
            )
        if name in sys.builtin_module_names or name in sys.stdlib_module_names:
            return FoundModule(None) if name in sys.builtin_module_names else self._top_level(name)
        if name == ORIGIN.parent.name:
            # Runs are made by this process's harness, whatever lies on their path: in a checkout, half a package does.
            return FoundModule(ORIGIN, (ORIGIN.parent,))
        if name == "t5x" and self._t5x_parent is not None:
            return _look_in((self._t5x_parent,), name)
        return self._top_level(name)

    def _top_level(self, name: str) -> FoundModule | None:
        if (found := _look_in(self._path, name)) is not None and not found.is_namespace:
            return found
        # An editable install answers through a finder of its own, and comes before a bare folder of that name.
        return _ask_finders(name) or found


def _look_in(folders: Sequence[Path], name: str) -> FoundModule | None:
    """Looks in Python's order: in each folder a package, then a module; bare folders only if there is nothing else."""
    portions = []
    for folder in folders:
        inner = folder / name
        if os.path.isfile(init := inner / "__init__.py"):
            return FoundModule(init, (inner,))
        for suffix in importlib.machinery.all_suffixes():
            if os.path.isfile(file := folder / f"{name}{suffix}"):
                return FoundModule(file)
        if os.path.isdir(inner):
            portions.append(inner)
    return FoundModule(None, tuple(portions)) if portions else None


def _names_in(folder: Path) -> Sequence[str]:
    """Returns the Python modules and packages of a folder."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return ()
    names = [e.name.removesuffix(".py") for e in entries if e.name.endswith(".py") or e.is_dir()]
    return [name for name in names if name.isidentifier() and not name.startswith("_")]


def _ask_finders(name: str, folders: Sequence[Path] | None = None) -> FoundModule | None:
    """Asks the import system's finders, which import nothing; ``folders`` belong to the parent package."""
    path = [str(folder) for folder in folders] if folders is not None else None
    for finder in sys.meta_path:
        if not hasattr(finder, "find_spec"):
            continue
        try:
            spec = finder.find_spec(name, path)
        except (ImportError, ValueError, AttributeError, KeyError, OSError):
            continue
        if spec is None:
            continue
        below = tuple(Path(p) for p in spec.submodule_search_locations or ())
        return FoundModule(Path(spec.origin) if spec.has_location and spec.origin else None, below)
    return None
