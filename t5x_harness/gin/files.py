"""Finds gin files and Python modules on disk, in the search order of a T5X binary, without importing anything."""

import dataclasses
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.gin.problems import ProblemKind
from t5x_harness.spec import RunSpec
from t5x_harness.version import ORIGIN


def module_path(spec: RunSpec) -> tuple[Path, ...]:
    """Returns the folders in which a run's Python interpreter looks for modules, in order."""
    cwd = Path(os.path.abspath(spec.cwd))
    return (*(cwd / p for p in spec.python_path), cwd, *(Path(p) for p in sys.path if p))


@dataclasses.dataclass(frozen=True)
class FoundModule:
    """The location of a module.

    Attributes:
      origin: its file (``__init__.py`` for a package); None for a namespace package, a built-in and other modules
        that have no file.
      folders: the folders in which its submodules are looked up; empty for a plain module.
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
      path: the folders, in the order in which Python searches them; other entries are skipped.
      t5x_parent: the folder that holds the package ``t5x`` in use; it wins for that name.
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
        """Returns the modules in the folders that would contain a module with this full name."""
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
            found = _look_in(parent.folders, last)
            if found is None and parent.folders:
                found = _ask_finders(name, parent.folders)
            # An attribute, such as os.path, after it was imported.
            return found or (FoundModule(None) if sys.modules.get(name) else None)
        if name in sys.builtin_module_names or name in sys.stdlib_module_names:
            return FoundModule(None) if name in sys.builtin_module_names else self._top_level(name)
        if name == __name__.partition(".")[0]:
            # This process's harness makes the runs, even if their path has another one, such as a checkout's half
            # package.
            origin = Path(ORIGIN).resolve()
            return FoundModule(origin, (origin.parent,))
        if name == "t5x" and self._t5x_parent is not None:
            return _look_in((self._t5x_parent,), name)
        return self._top_level(name)

    def _top_level(self, name: str) -> FoundModule | None:
        if (found := _look_in(self._path, name)) is not None and not found.is_namespace:
            return found
        # An editable install has its own finder, and comes before a bare folder with that name.
        return _ask_finders(name) or found


def _look_in(folders: Sequence[Path], name: str) -> FoundModule | None:
    """Looks in Python's order: in each folder a package, then a module; bare folders only if nothing else is found."""
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


GCS_MOUNT = Path("/gcs")
"""The folder in which Vertex AI mounts buckets: ``/gcs/bucket/name`` is ``gs://bucket/name``."""

_GS = "gs://"

_IN_CLONE = re.compile(r"(?:^|/)t5x/(t5x/.+)")
"""Matches a file in a clone of T5X's repository: jobs start next to the clone, and include ``t5x/t5x/configs/…``."""


@dataclasses.dataclass(frozen=True)
class FoundFile:
    """A gin file: its absolute path and its display name.

    Attributes:
      out_of_reach: the places that come before it in the search, but cannot be reached from here.
      in_clone: whether the T5X in use provides it in place of a clone of T5X's repository that is not here.
    """

    path: Path
    shown: str
    out_of_reach: tuple[str, ...] = ()
    in_clone: bool = False


@dataclasses.dataclass(frozen=True)
class NoGinFile:
    """The reason why a file cannot be opened.

    Attributes:
      kind: ``MISSING_FILE``; ``UNREACHABLE_FILE`` for a file that may be in a bucket unavailable to this machine; or
        ``NOT_A_PACKAGE`` if Gin stops at a folder on the Python path without ``__init__.py`` before it finds the file.
      names: the folders that were searched, in order; the names under which it may exist; or the file itself.
      folder: the folder at which Gin stops.
    """

    kind: ProblemKind
    names: tuple[str, ...]
    folder: str = ""


class FileFinder:
    """Looks up a gin file as T5X and Gin do together.

    The order is the working directory, the search paths, then the folder that holds the package ``t5x``. In each of
    them, the file itself comes before the file as a resource of a Python package. If one of T5X's files is requested in
    a clone of its repository that only the job has, the package in use provides it.

    Args:
      cwd: the run's working directory.
      search_paths: the folders of ``--gin_search_paths``; empty means T5X's default, the working directory.
      t5x_parent: the folder that holds the package ``t5x`` in use.
      modules: the finder of packages.
      buckets: a folder with a folder for each bucket; by default the one in which Vertex AI mounts them.
    """

    def __init__(
        self,
        cwd: Path,
        search_paths: Sequence[str],
        t5x_parent: Path | None,
        modules: ModuleFinder,
        buckets: Path | None = None,
    ) -> None:
        self._cwd = cwd
        self._buckets = buckets or GCS_MOUNT
        self._t5x_parent = t5x_parent
        self._prefixes = ("", *(search_paths or ["."]), *([str(t5x_parent)] if t5x_parent else []))
        self._modules = modules
        self._known: dict[str, FoundFile | NoGinFile] = {}

    def find(self, target: str) -> FoundFile | NoGinFile:
        """Looks up one file; the first match wins."""
        if target not in self._known:
            self._known[target] = self._search(target)
        return self._known[target]

    def _search(self, target: str) -> FoundFile | NoGinFile:
        alone = os.path.isabs(target) or target.startswith(_GS)
        prefixes = ("",) if alone else self._prefixes
        stop: Path | None = None
        hidden: list[str] = []
        for prefix in prefixes:
            joined = os.path.join(prefix, target)
            path = self._path(joined)
            if path is None:
                hidden.append(joined)
                continue
            file = path if os.path.isfile(path) else None
            if file is None and (package := self._package(joined)) is not None:
                if package.is_namespace:
                    stop = stop or package.folders[0]
                elif package.origin is not None:  # the file next to its __init__.py
                    beside = package.origin.parent / os.path.basename(joined)
                    file = beside if os.path.isfile(beside) else None
            if file is not None:
                found = self._found(file, tuple(hidden))
                if stop is None:
                    return found
                return NoGinFile(ProblemKind.NOT_A_PACKAGE, (found.shown,), self.shown(stop))
        if file := self._in_clone(target):
            return dataclasses.replace(self._found(file, tuple(hidden)), in_clone=True)
        if hidden:
            return NoGinFile(ProblemKind.UNREACHABLE_FILE, tuple(dict.fromkeys(hidden)))
        searched = tuple(dict.fromkeys(p or "." for p in prefixes)) if not alone else ()
        return NoGinFile(ProblemKind.MISSING_FILE, searched)

    def _in_clone(self, target: str) -> Path | None:
        """Returns the file of the package in use if a target is in a clone's package; None if it is not."""
        inside = _IN_CLONE.search(target)
        if inside is None or self._t5x_parent is None:
            return None
        path = Path(os.path.abspath(self._t5x_parent)) / inside[1]
        return path if path.is_file() else None

    def _path(self, joined: str) -> Path | None:
        """Returns the local path of a name; None if it is in a bucket that is not available here."""
        path = GCS_MOUNT / joined.removeprefix(_GS).lstrip("/") if joined.startswith(_GS) else self._cwd / joined
        if not path.is_relative_to(GCS_MOUNT):
            return path
        in_bucket = path.relative_to(GCS_MOUNT)
        is_here = os.path.isdir(self._buckets.joinpath(*in_bucket.parts[:1]))
        return self._buckets / in_bucket if is_here else None

    def _found(self, path: Path, out_of_reach: tuple[str, ...]) -> FoundFile:
        tidy = Path(os.path.normpath(path))
        if tidy != path and not _is_same(tidy, path):  # `..` after a link to another folder
            tidy = path
        return FoundFile(tidy, self.shown(tidy), out_of_reach)

    def shown(self, path: Path) -> str:
        """Returns a path in the form to show to users.

        An object has the form ``gs://…``, and a file below the working directory is relative to it.
        """
        if self._buckets != GCS_MOUNT and path.is_relative_to(self._buckets):
            return f"{_GS}{path.relative_to(self._buckets)}"
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _package(self, joined: str) -> FoundModule | None:
        """Returns the Python package that is named as the file's folder."""
        name = os.path.dirname(joined).replace("/", ".")
        # Gin looks up any folder, even one whose name no import statement could spell.
        return self._modules.find(name) if all(name.split(".")) else None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
