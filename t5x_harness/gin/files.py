"""Finds and reads gin files in the order in which a T5X binary looks for them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.gin.modules import FoundModule, ModuleFinder
from t5x_harness.gin.problems import ProblemKind

GCS_MOUNT = Path("/gcs")
"""Where Vertex AI mounts buckets: ``/gcs/bucket/name`` is ``gs://bucket/name``."""

_GS = "gs://"

_IN_CLONE = re.compile(r"(?:^|/)t5x/(t5x/.+)")
"""Of a file in a clone of T5X's repository: jobs start where it was cloned, and include ``t5x/t5x/configs/…``."""


@dataclasses.dataclass(frozen=True)
class FoundFile:
    """A gin file: its absolute path, and the name to show for it.

    Attributes:
      out_of_reach: where it would have been looked for before, had that place been within reach.
      in_clone: whether the T5X in use provides it in place of a clone of T5X's repository that is not here.
    """

    path: Path
    shown: str
    out_of_reach: tuple[str, ...] = ()
    in_clone: bool = False


@dataclasses.dataclass(frozen=True)
class NoGinFile:
    """Why a file cannot be opened.

    Attributes:
      kind: ``MISSING_FILE``; ``UNREACHABLE_FILE`` for one that may lie in a bucket that this machine does not see; or
        ``NOT_A_PACKAGE`` if Gin stops at a folder on the Python path without ``__init__.py`` before it comes to it.
      names: the folders that were searched, in order; the names under which it may be there; or the file itself.
      folder: where Gin stops.
    """

    kind: ProblemKind
    names: tuple[str, ...]
    folder: str = ""


class FileFinder:
    """Looks up a gin file as T5X and Gin do together.

    The order is the working directory, the search paths, then the folder that holds the package ``t5x``. In each of
    them, the file itself comes before the file as a resource of a Python package. If a file of T5X's is asked for in a
    clone of its repository that only the job has, the package in use provides it.

    Args:
      cwd: the run's working directory.
      search_paths: as ``--gin_search_paths``; empty means T5X's default, the working directory.
      t5x_parent: folder that holds the package ``t5x`` in use.
      modules: finds the packages.
      buckets: folder with a folder for each bucket; by default where Vertex AI mounts them.
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

    def find(self, target: str) -> FoundFile | NoGinFile:
        """Looks up one file; the first match wins."""
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
                else:
                    file = _resource(package, joined)
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
        """Returns the package's own file if a target lies in the package of a clone; None if it does not."""
        inside = _IN_CLONE.search(target)
        if inside is None or self._t5x_parent is None:
            return None
        path = Path(os.path.abspath(self._t5x_parent)) / inside[1]
        return path if path.is_file() else None

    def _path(self, joined: str) -> Path | None:
        """Returns where a name lies on this machine; None for one in a bucket that is not here."""
        path = GCS_MOUNT / joined.removeprefix(_GS).lstrip("/") if joined.startswith(_GS) else self._cwd / joined
        if not path.is_relative_to(GCS_MOUNT):
            return path
        in_bucket = path.relative_to(GCS_MOUNT)
        is_here = os.path.isdir(self._buckets.joinpath(*in_bucket.parts[:1]))
        return self._buckets / in_bucket if is_here else None

    def _found(self, path: Path, out_of_reach: tuple[str, ...]) -> FoundFile:
        tidy = Path(os.path.normpath(path))
        if tidy != path and not _is_same(tidy, path):  # `..` behind a link to another folder
            tidy = path
        return FoundFile(tidy, self.shown(tidy), out_of_reach)

    def shown(self, path: Path) -> str:
        """Returns a path as users should read it.

        An object is ``gs://…``, and a file below the working directory is relative to it.
        """
        if self._buckets != GCS_MOUNT and path.is_relative_to(self._buckets):
            return f"{_GS}{path.relative_to(self._buckets)}"
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _package(self, joined: str) -> FoundModule | None:
        """Returns the Python package that is named as the file's folder."""
        name = os.path.dirname(joined).replace("/", ".")
        # Gin asks for any folder, even one whose name no import statement could spell.
        return self._modules.find(name) if all(name.split(".")) else None


def _resource(package: FoundModule, joined: str) -> Path | None:
    """Returns the file beside a package's own ``__init__.py``."""
    if package.origin is None:
        return None
    path = package.origin.parent / os.path.basename(joined)
    return path if os.path.isfile(path) else None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
