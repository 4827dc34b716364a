"""The closure of a run: all files that its job needs and the image lacks, from gin files to modules.

T5X's own gin files are in the image. All others are staged under unique names, even two files called ``model.gin``, and
staged copies include each other by these names, so a job never searches folders that it does not have.
"""

import dataclasses
import glob
import hashlib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from t5x_harness.buckets.addresses import GS, mounted
from t5x_harness.buckets.folders import StagedFile
from t5x_harness.gin.problems import ProblemKind
from t5x_harness.gin.program import BINDINGS, GinProgram, Include
from t5x_harness.gin.reader import read
from t5x_harness.gin.reading import program_of, snapshot_of
from t5x_harness.spec import RunResult, RunSpec, Stage
from t5x_harness.vertex.modules import ClosureError, LocalRoots, Modules

_INCLUDE = re.compile(r"""(^[ \t]*include\s+)(?:'[^'\n]*'|"[^"\n]*")""")
_UNREADABLE: Mapping[ProblemKind, str] = {
    ProblemKind.MISSING_FILE: "there is no such file",
    ProblemKind.NOT_A_PACKAGE: "Gin finds no such file: a folder on its way is not a Python package",
    ProblemKind.UNREADABLE_FILE: "it cannot be read",
    ProblemKind.INCLUDE_CYCLE: "it includes itself, so this would never end",
}


@dataclasses.dataclass(frozen=True)
class GinPath:
    """The place of a gin file in a job.

    Attributes:
      name: the name of a staged file; otherwise a path by which any T5X finds its own file, or ``/gcs/…`` in a bucket.
      staged: whether it is staged.
    """

    name: str
    staged: bool = False

    def under(self, root: str) -> str:
        """Returns the path for ``--gin_file`` and ``include``, if files are staged in the folder ``root``."""
        return f"{root}/{self.name}" if self.staged else self.name


@dataclasses.dataclass(frozen=True)
class _GinFile:
    """A gin file to stage: its text, and the new target of each line with an include."""

    name: str
    text: str
    includes: Mapping[int, GinPath]

    def under(self, root: str) -> StagedFile:
        lines = self.text.split("\n")  # counted as Gin counts them
        for line, target in self.includes.items():
            lines[line - 1] = _including(lines[line - 1], target.under(root), f"{self.name}:{line}")
        return StagedFile(self.name, "\n".join(lines).encode())


@dataclasses.dataclass(frozen=True)
class Closure:
    """The files on this machine that a run needs.

    Attributes:
      program: the parsed run.
      gin_files: the places where the job finds the run's gin files, in order.
      search_paths: folders in buckets in which the job looks up files that this machine does not see.
      modules: files of Python modules, below ``python/``.
      of_image: gin files and modules that the image has to provide.
      of_buckets: gin files that the job reads from buckets.
      passed_over: files in packages or named in the config that are not staged, each with the reason.
    """

    program: GinProgram = dataclasses.field(repr=False)
    gin_files: tuple[GinPath, ...]
    search_paths: tuple[str, ...]
    modules: tuple[StagedFile, ...]
    of_image: tuple[str, ...]
    of_buckets: tuple[str, ...]
    passed_over: tuple[str, ...]
    _gin: tuple[_GinFile, ...] = dataclasses.field(repr=False)
    _included_by_bindings: Mapping[int, GinPath] = dataclasses.field(repr=False)

    @cached_property
    def digest(self) -> str:
        """A hash of the staged files, as 16 hexadecimal digits."""
        everything = hashlib.sha256()
        for file in self.files(""):
            everything.update(f"{file.name}\0{len(file.content)}\0".encode() + file.content)
        return everything.hexdigest()[:16]

    def files(self, root: str) -> tuple[StagedFile, ...]:
        """Returns the files to stage, sorted by name.

        Args:
          root: the path of the staging folder in the job, ``/gcs/bucket/folder``.
        """
        return tuple(sorted((*(file.under(root) for file in self._gin), *self.modules), key=lambda file: file.name))

    def bindings(self, root: str) -> tuple[str, ...]:
        """Returns the run's bindings, with includes that name the staged files."""
        given = enumerate(self.program.spec.bindings, start=1)
        included = self._included_by_bindings
        return tuple(_including(text, included[n].under(root), text) if n in included else text for n, text in given)


def not_of_a_job(path: str, whose: str) -> str:
    """Returns a message that says that a file on this machine is not staged, and what to do about it."""
    return (
        f"{path}, {whose}: a job does not have this machine's files; copy it to a bucket and name it gs://BUCKET/…, "
        "unless the image has it at this path"
    )


def closure_of(spec: RunSpec) -> Closure:
    """Reads the files that a run needs.

    Args:
      spec: the run, whose bindings are :func:`~t5x_harness.vertex.arguments.normalized`.

    Raises:
      ClosureError: a file cannot be read, or is reached by a link that leads out of the project.
      RuntimeError: ``spec.runtime`` names a T5X that is not installed.
    """
    program = program_of(spec)
    problem = next((problem for problem in program.problems if problem.kind in _UNREADABLE), None)
    if problem is not None:
        where = problem.location
        asked = problem.subject if where.line == 0 else f"{where} includes {problem.subject}"
        reason = f": {problem.detail}" if problem.kind is ProblemKind.UNREADABLE_FILE and problem.detail else ""
        raise ClosureError(f"{asked}: {_UNREADABLE[problem.kind]}{reason}; nothing is staged")
    return _FileCollector(program).closure()


class _FileCollector:
    def __init__(self, program: GinProgram) -> None:
        self._program = program
        self._spec = program.spec
        self._roots = LocalRoots.of(program.spec)
        self._of_image: dict[str, None] = {}
        self._of_buckets: dict[str, None] = {}
        self._places = {shown: self._place(shown) for shown in program.files}

    def closure(self) -> Closure:
        included = self._included()
        gin_files = tuple(self._named(given) for given in self._spec.gin_files)
        modules = Modules(self._program, self._roots)
        return Closure(
            program=self._program,
            gin_files=gin_files,
            search_paths=tuple(path for given in self._spec.search_paths if (path := mounted(given)) is not None),
            modules=modules.files,
            of_image=(*self._of_image, *modules.of_image),
            of_buckets=tuple(self._of_buckets),
            passed_over=(*modules.passed_over, *self._local_files()),
            _gin=tuple(
                _GinFile(place.name, self._program.texts[shown], included.get(shown, {}))
                for shown, place in self._places.items()
                if place.staged
            ),
            _included_by_bindings=included.get(BINDINGS, {}),
        )

    def _place(self, shown: str) -> GinPath:
        """Returns where the job finds a file that was read here."""
        if self._program.is_of_t5x(shown):
            path = Path(os.path.abspath(self._spec.cwd)) / shown
            name = path.relative_to(self._program.t5x_parent or "").as_posix()
            self._of_image.setdefault(name)
            return GinPath(name)
        if shown.startswith(GS):
            return GinPath(f"gin/buckets/{shown.removeprefix(GS)}", staged=True)
        return GinPath(f"gin/{self._roots.name_of(Path(shown))}", staged=True)

    def _local_files(self) -> Iterator[str]:
        """Yields the files on this machine that values in the config name, such as a vocabulary. No job has them."""
        for binding in self._program.final.values():
            value = binding.value
            is_path = isinstance(value, str) and "/" in value and not value.startswith((GS, "/gcs/", "t5x/"))
            if is_path and os.path.isfile(os.path.join(self._spec.cwd, value)):
                yield not_of_a_job(value, f"which {binding} names ({binding.location})")

    def _elsewhere(self, target: str) -> GinPath:
        """Returns where the job finds a file that this machine does not have: in its bucket, or by its own search."""
        name = mounted(target) or target
        self._of_buckets.setdefault(name)
        return GinPath(name)

    def _included(self) -> dict[str, dict[int, GinPath]]:
        """Returns the include lines of each file and of the bindings, and where the job finds their targets."""
        found: dict[str, dict[int, GinPath]] = {}
        for statement in self._program.statements:
            if isinstance(statement, Include):
                place = self._places.get(statement.file or "") or self._elsewhere(statement.target)
                if place.staged and self._program.is_of_t5x(statement.location.file):
                    raise ClosureError(
                        f"{statement.location} is T5X's own and includes {statement.target}, which here is "
                        f"{statement.file} and in the job would be the image's; give your file a name of its own, and "
                        "include it after T5X's"
                    )
                found.setdefault(statement.location.file, {})[statement.location.line] = place
        return found

    def _named(self, given: str) -> GinPath:
        """Returns where the job finds a file that the user named."""
        alone = dataclasses.replace(self._spec, gin_files=(given,), bindings=())
        parent = Path(self._program.t5x_parent) if self._program.t5x_parent else None
        shown = next(iter(read(alone, t5x_parent=parent, snapshot=snapshot_of(self._program)).files), "")
        return self._places.get(shown) or self._elsewhere(given)


def _including(line: str, target: str, where: str) -> str:
    changed, count = _INCLUDE.subn(lambda match: f"{match[1]}{target!r}", line, count=1)
    if not count:
        raise ClosureError(
            f"{where}: this include cannot be changed to the staged file; write it as include '{target}'"
        )
    return changed


# Tables of the resolve stage, with the column for the file and the column for its users.
_TABLES = {"vocabulary": ("file", "of"), "sources": ("read from", "task")}
_WHAT = {"vocabulary": "the vocabulary of", "sources": "the examples of"}
_MODEL = "model"


def unstaged_files(closure: Closure, result: RunResult) -> tuple[str, ...]:
    """Returns the files on this machine that the run's tasks and model read, with advice for each.

    Files that are staged with their package, and files of T5X and other installed packages, are left out, because the
    job gets them with its modules.

    Args:
      closure: the files that the job gets.
      result: the result of the checked run; without the resolve stage, the files are not known.
    """
    cwd = Path(os.path.abspath(result.spec.cwd))
    # The folders whose files are expected in the image: installed packages, T5X, and this package.
    installed = [sysconfig.get_paths()[name] for name in ("purelib", "platlib")]
    samples = importlib.util.find_spec("t5x_harness.sample_tasks")
    harness = [Path(__file__).parents[1], *((samples and samples.submodule_search_locations) or ())]
    t5x = [os.path.join(closure.program.t5x_parent, "t5x")] if closure.program.t5x_parent else []
    image = [Path(each).resolve() for each in (*installed, *harness, *t5x)]
    found: dict[str, None] = {}
    for what, path, users in _named(result):
        matching = [Path(each) for each in glob.glob(os.path.join(cwd, path)) if os.path.isfile(each)]
        if not matching or any(note.startswith(f"{path},") for note in closure.passed_over):
            continue
        if os.path.isabs(path) and all(_has(closure, file, image) for file in matching):
            continue
        found.setdefault(not_of_a_job(path, f"{_WHAT[what]} {users}"))
    return tuple(found)


def _named(result: RunResult) -> Iterator[tuple[str, str, str]]:
    """Yields each local path in the tables of the resolve stage: the table, the path, and its users."""
    stage = next((each for each in result.stages if each.stage is Stage.RESOLVE), None)
    for table in stage.tables if stage else ():
        if table.name not in _TABLES:
            continue
        file, user = (table.columns.index(column) for column in _TABLES[table.name])
        for row in table.rows:
            named = str(row[file]) if len(row) > file else ""
            users = ", ".join("the " + each if each == _MODEL else each for each in str(row[user]).split(", "))
            for path in named.split(", "):
                if "://" not in path and not path.startswith(("/gcs/", "t5x/")):
                    yield table.name, path, users


def _has(closure: Closure, file: Path, image: Sequence[Path]) -> bool:
    """Returns whether the job has a file among its staged files or in the image, next to the module that names it."""
    real = file.resolve()
    if any(real.is_relative_to(place) for place in image):
        return True
    ends = (each for each in closure.modules if real.as_posix().endswith(f"/{each.name.removeprefix('python/')}"))
    return any(each.content == real.read_bytes() for each in ends)
