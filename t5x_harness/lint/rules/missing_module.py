"""GIN15: imports of missing modules."""

import itertools
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from t5x_harness.findings.rule import Example, Found, Rule
from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.problems import ProblemKind
from t5x_harness.gin.program import MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.gin.sources import SourceFinder
from t5x_harness.lint import t5_package
from t5x_harness.lint.rule import Context, shown_folder, where
from t5x_harness.spec import Location, Severity, StandInPolicy
from t5x_harness.system.misspelling import closest

_MOST_MODULES = 300


def named_modules(program: GinProgram) -> Iterator[tuple[str, Binding | MacroBinding]]:
    """Yields the modules that T5X imports for their tasks, ``MIXTURE_OR_TASK_MODULE``, and the binding of each."""
    seen: set[str] = set()
    for binding, given in program.given_values:
        is_module = (binding.target, binding.param) == ("t5x.utils.DatasetConfig", "module")
        # GIN08 reports the quotes of 'None'.
        if is_module and isinstance(given.value, str) and given.value not in ("", "None", *seen):
            seen.add(given.value)
            yield given.value, given


def _missing_imports(context: Context, finder: ModuleFinder) -> Iterable[Found]:
    """Finds the unconditional imports of the project's modules that Python would not find, each package once.

    Returns nothing if a module changes the search for modules, and ignores the imports of libraries.
    """
    program, sources = context.program, context.snapshot.sources
    waiting = deque((s.module, s.location) for s in program.imports if s.module != MAIN)
    waiting.extend((name, given.location) for name, given in named_modules(program))
    seen: set[str] = set()
    found: dict[str, Found] = {}
    while waiting and len(seen) < _MOST_MODULES:
        name, asked_at = waiting.popleft()
        if name in seen or not name:
            continue
        seen.add(name)
        waiting.append((name.rpartition(".")[0], asked_at))
        file = _own_file(program, finder, name)
        source = sources.source(name) if file is not None else None
        if file is None or source is None:
            continue
        if source.changes_import_path:
            return ()
        waiting.extend((module, asked_at) for module in source.imports.values() if finder.find(module) is not None)
        for imported, line in source.required_imports:
            if finder.find(imported) is not None:
                waiting.append((imported, asked_at))
            elif _is_surely_missing(program, finder, sources, imported):
                part = finder.missing_part(imported)
                message = f"{file} imports {imported}, which is not there ({where(asked_at)} brings {name})"
                fix = fix_of(context, finder, imported, part)
                # Resolve, which imports it, reports the error.
                found.setdefault(part, Found(message, Location(file, line), fix, severity=Severity.WARNING))
    return found.values()


def _own_file(program: GinProgram, finder: ModuleFinder, name: str) -> str | None:
    """Returns the file of a user's module, as named in locations; None for a library's module."""
    module = finder.find(name)
    if module is None or module.origin is None or module.origin.suffix != ".py":
        return None
    if not str(module.origin).startswith(os.path.join(os.path.abspath(program.spec.cwd), "")):
        return None
    file = os.path.relpath(module.origin, program.spec.cwd)
    return None if program.is_installed(file) else file


def _is_surely_missing(program: GinProgram, finder: ModuleFinder, sources: SourceFinder, name: str) -> bool:
    """Returns whether a module is missing: not one of Python's own, nor provided by a package that looks elsewhere."""
    top = name.split(".")[0]
    if top in sys.stdlib_module_names or sources.opener(name, ()) is not None:
        return False
    part = finder.missing_part(name)
    return part == top or _own_file(program, finder, part.rpartition(".")[0]) is not None


_KNOWN = {
    t5_package.NAME: t5_package.INSTALL,
    "flaxformer": "python -m pip install git+https://github.com/google/flaxformer",  # it is not on PyPI
}
_PACKAGES = frozenset(
    "clu fiddle flax jax optax orbax sentencepiece seqio tensorboard tensorflow tensorflow_datasets "
    "tensorflow_text".split()
)
"""The packages that the extra t5x installs, by the names under which they are imported."""
_MOST_FOLDERS = 500


@Rule(
    "GIN15",
    "import of a module that does not exist here",
    why=(
        "The Python path of the job differs from the laptop's more often than not: `ModuleNotFoundError` on the TPU. "
        "The module is looked up without importing it."
    ),
    bad=Example("from __gin__ import dynamic_registration\nimport my_tasks_that_are_elsewhere\n", at="import my_tasks"),
    good=Example("from __gin__ import dynamic_registration\nimport seqio\n"),
)
def missing_module(context: Context) -> Iterator[Found]:
    """Finds each module that Python would not find, in the config's imports and in the user's modules."""
    finder = context.snapshot.finder
    for problem in context.program.problems_of(ProblemKind.MISSING_MODULE):
        part = problem.detail
        whole = "" if part == problem.subject else f" (for {problem.subject})"
        standin = _standin(context, problem.subject, part)
        yield Found(
            f"there is no module {part}{whole}{standin}",
            problem.location,
            fix_of(context, finder, problem.subject, part),
            severity=Severity.WARNING if standin else None,
        )
    if finder.find("seqio") is None:
        return  # T5X imports it, so this Python cannot run T5X, and the other modules that it lacks say little
    for name, given in named_modules(context.program):
        if finder.find(name) is None and context.snapshot.sources.opener(name, ()) is None:
            part = finder.missing_part(name)
            yield Found(
                f"{given} = {name!r}: there is no module {part}{_standin(context, name, part)}",
                given,
                fix_of(context, finder, name, part),
                # A package that is missing altogether may be in the image of the job.
                severity=Severity.ERROR if "." in part else Severity.WARNING,
            )
    yield from _missing_imports(context, finder)


def _standin(context: Context, name: str, part: str) -> str:
    """Returns a clause about what a run here imports in place of a module; empty if there is nothing."""
    has_standin = part == t5_package.NAME and name in t5_package.MODULES
    if not has_standin or context.program.spec.settings.standins is StandInPolicy.OFF:
        return ""
    return f"; runs here have stand-ins for {', '.join(t5_package.TASKS)}, and for none of its other tasks"


def fix_of(context: Context, finder: ModuleFinder, name: str, part: str) -> str:
    """Returns how to make a module importable, given its first component ``part`` that is missing."""
    top, _, rest = name.partition(".")
    if top == "t5x":
        if rest == "train_unfragmented":
            return "T5X has no such program: t5x.train is the one that trains"
        if context.snapshot.is_embedded:
            return "the embedded runtime does not have it: install T5X from its git repository"
        return "check its spelling against the T5X that is installed"
    if part in _KNOWN:  # before t5x is suggested as the intended name
        return f"install it: {_KNOWN[part]}"
    right = closest(part, finder.beside(part))
    if right is not None and (part != top or top not in _PACKAGES):
        return f"did you mean {right}{name.removeprefix(part)}?"
    if part != top:
        return f"{top} is there, but has no {part}: check the spelling and the version"
    if top in _PACKAGES:
        return "install what T5X runs with: python -m pip install 't5x-harness[t5x]'"
    spec = context.program.spec
    if (folder := _folder_with(Path(spec.cwd), top)) is not None:
        return (
            f'{folder}/{top} is there: set python_path = ["{folder}"] in [tool.t5x_harness] of pyproject.toml, or '
            f"PYTHONPATH={folder}, and the same in the image of the job"
        )
    path = ", ".join((*(shown_folder(folder, context.program) for folder in spec.python_path), "."))
    return f"install it, or add its folder to python_path (searched: {path}, and the installed packages)"


def _folder_with(cwd: Path, module: str) -> str | None:
    """Returns the folder below the working directory, at most two deep, that contains a module; None if none does."""
    for pattern in ("*", "*/*"):
        for folder in itertools.islice(cwd.glob(pattern), _MOST_FOLDERS):
            inside = folder.relative_to(cwd)
            if inside.name.startswith((".", "_")) or (folder / "__init__.py").is_file():
                continue
            if (folder / f"{module}.py").is_file() or any((folder / module).glob("*.py")):
                return inside.as_posix()
    return None
