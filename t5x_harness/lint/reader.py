"""Reads a run's gin files and bindings in T5X's order into a :class:`GinProgram`, without importing what they name."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5x_harness.lint import parsing
from t5x_harness.lint.files import FileFinder, FoundFile, NotAPackage
from t5x_harness.lint.modules import ModuleFinder
from t5x_harness.lint.problems import Problem, ProblemKind
from t5x_harness.lint.program import (
    BINDINGS,
    MAIN,
    Binding,
    GinProgram,
    Import,
    Include,
    MacroBinding,
    Statement,
)
from t5x_harness.lint.snapshot import Snapshot
from t5x_harness.lint.symbols import FileScope, Registry
from t5x_harness.lint.values import Reference
from t5x_harness.spec import Location, RunSpec

__all__ = ["read"]

_DEEPEST_INCLUDE = 100
_MOST_FILES = 2000  # of one run, each counted as often as it is included

# Their configurables all have a decorator-free form, so that an unknown bare name cannot come from them.
_UNDECORATED = frozenset({"seqio", "optax", "flax", "jax", "numpy", "tensorflow", "t5x", MAIN, "__gin__"})


def read(spec: RunSpec, *, t5x_parent: Path | None) -> GinProgram:
    """Reads everything a run would read.

    Args:
      spec: gin files, bindings, search paths and python path; its ``cwd`` is what relative paths start from.
      t5x_parent: the folder that holds the package ``t5x`` of the run; None if there is none.

    Returns:
      The program. Nothing that a file may contain makes this raise; see ``GinProgram.problems``.
    """
    return _Reader(spec, t5x_parent).read()


class _Reader:
    """The state of one reading."""

    def __init__(self, spec: RunSpec, t5x_parent: Path | None) -> None:
        self._spec = spec
        self._t5x_parent = t5x_parent
        cwd = Path(os.path.abspath(spec.cwd))
        python_path = [cwd / p for p in spec.python_path]
        self._modules = ModuleFinder([*python_path, cwd, *(p for p in sys.path if p)], t5x_parent)
        self._files = FileFinder(cwd, spec.search_paths, t5x_parent, self._modules)
        self._registry = Registry()
        self._snapshot = Snapshot(t5x_parent)
        self._statements: list[Statement] = []
        self._problems: list[Problem] = []
        self._opened: list[str] = []
        self._unknown_imports: dict[str, None] = {}
        self._bare_unknown: dict[str, None] = {}

    def read(self) -> GinProgram:
        for name in self._spec.gin_files:
            self._read_file(name, Location(name, 0), chain=(), open_files=())
        scope = FileScope(self._registry)
        for number, text in enumerate(self._spec.bindings, start=1):
            statements, errors = parsing.parse(text)
            for error in errors:
                self._problem(ProblemKind.SYNTAX, Location(BINDINGS, number), error.text, error.message)
            for raw in statements:
                self._statement(raw, scope, Location(BINDINGS, number), open_files=())
        return GinProgram(
            spec=self._spec,
            files=tuple(dict.fromkeys(self._opened)),
            statements=tuple(self._statements),
            problems=tuple(self._problems),
            not_checked=tuple(self._not_checked()),
            t5x_parent=str(self._t5x_parent) if self._t5x_parent else None,
        )

    def _not_checked(self) -> Iterator[str]:
        if self._bare_unknown:
            yield (
                f"whether {', '.join(self._bare_unknown)} can be configured: only the import of "
                f"{', '.join(self._unknown_imports)} shows what is registered there"
            )

    def _problem(
        self, kind: ProblemKind, where: Location, subject: str, detail: str = "", names: tuple[str, ...] = ()
    ) -> None:
        self._problems.append(Problem(kind, where, subject, detail, names))

    def _read_file(
        self, target: str, where: Location, chain: tuple[Location, ...], open_files: tuple[Path, ...]
    ) -> str | None:
        """Reads one file; ``where`` is the place that asks for it. Returns the name to show for it."""
        found = self._files.find(target)
        if isinstance(found, NotAPackage):
            self._problem(ProblemKind.NOT_A_PACKAGE, where, target, found.folder, (found.file,))
            return None
        if not isinstance(found, FoundFile):
            self._problem(ProblemKind.MISSING_FILE, where, target, names=found.searched)
            return None
        if found.path in open_files or len(open_files) >= _DEEPEST_INCLUDE or len(self._opened) >= _MOST_FILES:
            loop = [*(self._files.shown(p) for p in open_files), found.shown]
            self._problem(ProblemKind.INCLUDE_CYCLE, where, target, names=tuple(loop[-10:]))
            return found.shown
        try:
            text = found.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
            self._problem(ProblemKind.UNREADABLE_FILE, where, found.shown, reason)
            return found.shown
        self._opened.append(found.shown)
        scope = FileScope(self._registry)
        statements, errors = parsing.parse(text)
        waiting = list(errors)
        for raw in statements:
            while waiting and waiting[0].line < raw.line:
                self._syntax(waiting.pop(0), found.shown, chain)
            self._statement(raw, scope, Location(found.shown, raw.line, chain), (*open_files, found.path))
        for left in waiting:
            self._syntax(left, found.shown, chain)
        return found.shown

    def _syntax(self, error: parsing.SyntaxProblem, file: str, chain: tuple[Location, ...]) -> None:
        self._problem(ProblemKind.SYNTAX, Location(file, error.line, chain), error.text.strip(), error.message)

    def _statement(
        self, raw: parsing.RawStatement, scope: FileScope, where: Location, open_files: tuple[Path, ...]
    ) -> None:
        if isinstance(raw, parsing.RawImport):
            self._import(raw, scope, where)
        elif isinstance(raw, parsing.RawInclude):
            here = Location(where.file, where.line)
            file = self._read_file(raw.target, where, (*where.included_from, here), open_files)
            self._statements.append(Include(where, raw.target, file))
        elif isinstance(raw, parsing.RawBlock):
            self._resolve(raw.selector, scope, where)
        else:
            self._binding(raw, scope, where)

    def _import(self, raw: parsing.RawImport, scope: FileScope, where: Location) -> None:
        if raw.is_from and raw.module.startswith("__gin__."):
            if raw.module != "__gin__.dynamic_registration" or raw.alias:
                self._problem(ProblemKind.BAD_IMPORT, where, raw.module, "Gin has no such feature")
            elif scope.imports:
                names = tuple(str(i) for i in scope.imports)
                self._problem(ProblemKind.LATE_REGISTRATION, where, raw.module, names=names)
                scope.enable_dynamic_registration()  # to judge the rest of the file by what was meant
                for statement in list(scope.imports):
                    scope.add(statement)
            else:
                scope.enable_dynamic_registration()
            return
        parts = raw.module.split(".")
        name = raw.alias or (parts[-1] if raw.is_from else parts[0])
        statement = Import(where, raw.module, name, raw.is_from, raw.alias)
        self._statements.append(statement)
        if scope.dynamic and name == "gin":
            self._problem(ProblemKind.BAD_IMPORT, where, raw.module, "Gin keeps the name gin for itself")
            return
        scope.add(statement)
        if raw.module == MAIN:
            return
        if parts[0] not in _UNDECORATED:
            self._unknown_imports.setdefault(raw.module)
        if self._modules.find(raw.module) is None:
            part = self._modules.missing_part(raw.module)
            self._problem(ProblemKind.MISSING_MODULE, where, raw.module, part)

    def _binding(self, raw: parsing.RawBinding, scope: FileScope, where: Location) -> None:
        value = self._value(raw.value, scope, where)
        if not raw.param:
            name = f"{raw.scope}/{raw.selector}" if raw.scope else raw.selector
            self._statements.append(MacroBinding(where, name, value))
            return
        target = self._resolve(raw.selector, scope, where)
        if target == "gin.macro" and raw.param == "value":
            self._statements.append(MacroBinding(where, raw.scope, value))
            return
        self._statements.append(
            Binding(where, raw.scope, raw.selector, raw.param, value, target or raw.selector, target is not None)
        )

    def _value(self, value: Any, scope: FileScope, where: Location) -> Any:
        """The value with its references resolved."""
        if isinstance(value, Reference):
            return dataclasses.replace(value, target=self._resolve(value.selector, scope, where))
        if isinstance(value, dict):
            return {self._value(k, scope, where): self._value(v, scope, where) for k, v in value.items()}
        if isinstance(value, list):
            return [self._value(v, scope, where) for v in value]
        if isinstance(value, tuple):
            return tuple(self._value(v, scope, where) for v in value)
        return value

    def _resolve(self, selector: str, scope: FileScope, where: Location) -> str | None:
        resolution = scope.resolve(selector)
        if resolution.target is not None:
            return resolution.target
        if resolution.missing_symbol is not None:
            # In a block the head and each line name the same selector; once is enough.
            last = self._problems[-1] if self._problems else None
            problem = Problem(ProblemKind.SYMBOL_NOT_IMPORTED, where, selector, resolution.missing_symbol, scope.names)
            if not _repeats(last, problem):
                self._problems.append(problem)
        elif resolution.candidates:
            self._problem(ProblemKind.AMBIGUOUS_SELECTOR, where, selector, names=resolution.candidates)
        elif not self._surely_unknown(selector):
            self._bare_unknown.setdefault(selector)
        else:
            problem = Problem(ProblemKind.UNKNOWN_SELECTOR, where, selector)
            if not _repeats(self._problems[-1] if self._problems else None, problem):
                self._problems.append(problem)
        return None

    def _surely_unknown(self, selector: str) -> bool:
        """Whether no decorator in a module of the user's can register this: it means T5X's binary or a part of T5X."""
        aliases = {i.name for i in self._statements if isinstance(i, Import) and i.module == MAIN}
        return (
            not self._unknown_imports
            or selector.split(".")[0] in aliases
            or ("." in selector and bool(self._snapshot.suffixes(selector)))
        )


def _repeats(last: Problem | None, problem: Problem) -> bool:
    return (
        last is not None
        and (last.kind, last.subject, last.location.file) == (problem.kind, problem.subject, problem.location.file)
        and problem.location.line - last.location.line <= 1
    )
