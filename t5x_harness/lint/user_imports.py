"""The imports that a config's own Python modules need, found without importing any of them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.gin.modules import ModuleFinder, module_path
from t5x_harness.gin.program import MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.gin.sources import SourceFinder
from t5x_harness.spec import Location

_MOST_MODULES = 300
_DATASET = "t5x.utils.DatasetConfig"


@dataclasses.dataclass(frozen=True)
class MissingImport:
    """An import in a user's module that Python cannot find.

    Attributes:
      name: the module that is imported.
      part: the first component of its name that is not there.
      importer: the module that imports it.
      at: the line of the import.
      asked_at: the line of the config that imports the importer, or a module that does.
    """

    name: str
    part: str
    importer: str
    at: Location
    asked_at: Location


def named_modules(program: GinProgram) -> Iterator[tuple[str, Binding | MacroBinding]]:
    """Yields the modules that T5X imports for their tasks, ``MIXTURE_OR_TASK_MODULE``, and what names them."""
    seen: set[str] = set()
    for binding in program.final_bindings:
        given = program.resolve(binding)
        is_name = (binding.target, binding.param) == (_DATASET, "module") and isinstance(given.value, str)
        if is_name and given.value not in ("", "None", *seen):  # GIN08 has the quotes of 'None'
            seen.add(given.value)
            yield given.value, given


def missing_imports(program: GinProgram) -> tuple[MissingImport, ...]:
    """Returns the unconditional imports of the project's modules that Python would not find, each package once.

    Returns nothing if a module changes the search for modules, and ignores the imports of libraries.
    """
    finder = ModuleFinder(module_path(program.spec), Path(program.t5x_parent) if program.t5x_parent else None)
    sources = SourceFinder(finder)
    waiting = deque((s.module, s.location) for s in program.imports if s.module != MAIN)
    waiting.extend((name, given.location) for name, given in named_modules(program))
    seen: set[str] = set()
    found: dict[str, MissingImport] = {}
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
                found.setdefault(part, MissingImport(imported, part, name, Location(file, line), asked_at))
    return tuple(found.values())


def _own_file(program: GinProgram, finder: ModuleFinder, name: str) -> str | None:
    """Returns the file of a user's module, as locations show it; None for a library's module."""
    module = finder.find(name)
    if module is None or module.origin is None or module.origin.suffix != ".py":
        return None
    if not module.origin.is_relative_to(os.path.abspath(program.spec.cwd)):
        return None
    file = os.path.relpath(module.origin, program.spec.cwd)
    return None if program.is_installed(file) else file


def _is_surely_missing(program: GinProgram, finder: ModuleFinder, sources: SourceFinder, name: str) -> bool:
    """Returns whether a module is missing: not Python's own, and not made by a package that looks elsewhere."""
    top = name.split(".")[0]
    if top in sys.stdlib_module_names or sources.opener(name, ()) is not None:
        return False
    part = finder.missing_part(name)
    return part == top or _own_file(program, finder, part.rpartition(".")[0]) is not None
