"""The files on this machine that a job needs: mostly the user's Python modules that a run's gin files import.

A package is staged as a whole, with the vocabularies and tables in it. Modules that are installed in this Python but
are not part of the project are expected in the image.
"""

import ast
import dataclasses
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from t5x_harness.buckets.folders import StagedFile
from t5x_harness.gin.files import FoundModule, ModuleFinder, module_path
from t5x_harness.gin.program import MAIN, GinProgram
from t5x_harness.gin.sources import parse_module
from t5x_harness.spec import RunSpec


class ClosureError(ValueError):
    """A file that a job needs cannot be staged; the message names the file, what needs it, and the fix."""


@dataclasses.dataclass(frozen=True)
class LocalRoots:
    """The folders in which a run's files are looked up. No file is staged if a link to it leads out of them.

    Attributes:
      cwd: the absolute path of the working directory.
      others: the absolute paths of folders with gin files and modules.
    """

    cwd: Path
    others: tuple[Path, ...] = ()

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """Returns the folders of a run."""
        cwd = Path(os.path.abspath(spec.cwd))
        given = (*spec.search_paths, *spec.python_path)
        return cls(cwd, tuple(dict.fromkeys(Path(os.path.abspath(cwd / path)) for path in given if "://" not in path)))

    def name_of(self, file: Path) -> str:
        """Returns a unique name for a file.

        Args:
          file: the absolute path, or a path relative to the working directory.

        Raises:
          ClosureError: the file is reached by a link that leads out of the folders.
        """
        path = Path(os.path.abspath(self.cwd / file))
        self.require_inside(path)
        for root in (self.cwd, *self.others):
            if path.is_relative_to(root):
                inside = path.relative_to(root).as_posix()
                return inside if root == self.cwd else f"{_folder_name(root)}/{inside}"
        return f"{_folder_name(path.parent)}/{path.name}"

    def require_inside(self, path: Path) -> None:
        """Refuses a link that leads out of the folders. Directly naming a file outside of them is allowed.

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
    """Returns a file to stage under a name, with its content.

    Raises:
      ClosureError: the file cannot be read.
    """
    try:
        return StagedFile(name, path.read_bytes())
    except OSError as error:
        raise ClosureError(f"{path}: it cannot be read: {error.strerror}") from None


def _folder_name(folder: Path) -> str:
    """Returns a folder's name with a hash of its path, because two folders may both be called ``configs``."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return f"{folder.name or 'root'}-{digest}"


MOST_BYTES = 100 * 2**20

# Modules of T5X, and modules without which T5X does not run.
_OF_ANY_JOB = sys.stdlib_module_names | frozenset(
    f"{MAIN} __gin__ absl clu fiddle flax gin jax numpy optax orbax seqio t5x tensorflow tensorstore".split()
)
_HARNESS = "t5x_harness"
_ALONE = f"{_HARNESS}.preemption"
"""The module of the harness that jobs take along, because it needs nothing else of the harness."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class Modules:
    """The user's modules that a run imports, found by following the imports of its gin files.

    Args:
      program: the run.
      roots: the run's folders.

    Attributes:
      files: the modules' files, below ``python/``, which is on the job's import path.
      of_image: modules that gin files import and that the image has to provide.
      passed_over: files of packages that are not staged, each with the reason.

    Raises:
      ClosureError: a file cannot be read, or the files are too large to be staged.
    """

    def __init__(self, program: GinProgram, roots: LocalRoots) -> None:
        spec = program.spec
        parent = Path(program.t5x_parent) if program.t5x_parent else None
        self._finder = ModuleFinder(module_path(spec), parent)
        self._roots = roots
        self._cwd = roots.cwd
        self._own = tuple(Path(os.path.abspath(roots.cwd / folder)) for folder in spec.python_path)
        self._files: dict[str, StagedFile] = {}
        self._passed_over: dict[str, None] = {}
        self._size = 0
        self.of_image = tuple(self._collect(list(dict.fromkeys(_named_modules(program)))))
        self.files, self.passed_over = tuple(self._files.values()), tuple(self._passed_over)

    def _collect(self, waiting: list[str]) -> Iterator[str]:
        """Collects the files of modules and of all their imports; yields the modules that the image has to provide."""
        named = frozenset(waiting)
        seen: set[str] = set()
        while waiting:
            module = waiting.pop(0)
            if module in seen or module.split(".")[0] in _OF_ANY_JOB:
                continue
            seen.add(module)
            taken, path = list(self._take(module)), f"python/{module.replace('.', '/')}"
            if module in named and not {f"{path}.py", f"{path}/__init__.py"} & self._files.keys():
                yield f"module {module}"
            waiting.extend(name for file in taken if file.name.endswith(".py") for name in _imported(file))

    def _take(self, module: str) -> Iterator[StagedFile]:
        """Yields the files of a module that have not been added yet; none if the module is not part of the project."""
        parts = module.split(".")
        if module == _ALONE and (found := self._finder.find(module)) is not None and found.origin is not None:
            name = f"python/{'/'.join(parts)}.py"
            if name not in self._files:
                yield self._add(read_file(found.origin, name), found.origin)
            return
        for count in range(1, len(parts) + 1):
            found = self._finder.find(".".join(parts[:count]))
            if found is None or (count == 1 and not self._is_own(parts[0], found)):
                return
            if not found.is_namespace:
                yield from self._files_of(found, depth=count)
                return

    def _is_own(self, top: str, found: FoundModule) -> bool:
        """Returns whether a module is part of the project: in the working directory or one of the run's folders."""
        places = found.folders or ((found.origin,) if found.origin else ())
        return top != _HARNESS and any(
            place.parent in self._own
            or (place.is_relative_to(self._cwd) and not _INSTALLED & set(place.relative_to(self._cwd).parts))
            for place in places
        )

    def _files_of(self, found: FoundModule, depth: int) -> Iterator[StagedFile]:
        if found.origin is None:
            return
        top = found.origin.parent if found.folders else found.origin
        self._roots.require_inside(top)
        root = top.parents[depth - 1]
        paths = _below(top) if found.folders else (top,)
        for path in paths:
            name = f"python/{path.relative_to(root).as_posix()}"
            if name in self._files:
                continue
            if reason := _why_not(path, root):
                self._passed_over.setdefault(f"{path}: {reason}")
                continue
            yield self._add(read_file(path, name), path)

    def _add(self, file: StagedFile, path: Path) -> StagedFile:
        self._size += len(file.content)
        if self._size > MOST_BYTES:
            raise ClosureError(
                f"{path}: with it more than {MOST_BYTES >> 20} MiB of Python packages would be staged; put large data "
                "into a bucket, or the packages into the image"
            )
        self._files[file.name] = file
        return file


def _named_modules(program: GinProgram) -> Iterator[str]:
    """Yields the modules that gin files import, and those that T5X imports for them: ``MIXTURE_OR_TASK_MODULE``."""
    for statement in program.imports:
        yield statement.module
    for binding in program.final_bindings:
        value = program.resolve(binding).value
        if binding.param == "module" and isinstance(value, str):
            yield value


def _below(folder: Path) -> Iterable[Path]:
    """Returns the files of a package and the links to folders in it, without Python's caches and version control."""
    return sorted(
        path
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink())
        and path.suffix != ".pyc"
        and not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
    )


def _why_not(path: Path, root: Path) -> str:
    """Returns why a file in a package is not staged; empty if it is staged."""
    if path.is_dir():
        return "a link to a folder"
    if not path.exists():
        return "a link to nothing"
    return "" if path.resolve().is_relative_to(root.resolve()) else f"a link out of {root}"


def _imported(file: StagedFile) -> Iterator[str]:
    """Yields the full names that a source file imports anywhere in it; relative imports stay in its own package."""
    try:
        tree = parse_module(file.content)
    except (SyntaxError, ValueError, RecursionError):
        return  # the run will report it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
