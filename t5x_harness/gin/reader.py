"""Reads a run's gin files and bindings in T5X's order into a :class:`GinProgram`, without importing any modules."""

import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gin import config_parser

from t5x_harness.gin import parsing
from t5x_harness.gin.file_facts import FileFacts
from t5x_harness.gin.files import FoundFile, ModuleFinder, NoGinFile, module_path
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.program import (
    BINDINGS,
    MAIN,
    Binding,
    Block,
    GinProgram,
    Import,
    Include,
    MacroBinding,
    Statement,
)
from t5x_harness.gin.snapshot import Snapshot, canonical
from t5x_harness.gin.sources import definer_of_constants, may_register
from t5x_harness.gin.symbols import FileScope, Registry
from t5x_harness.gin.values import PLAIN, Reference
from t5x_harness.spec import Location, RunSpec

_DEEPEST_INCLUDE = 500  # Gin uses two of Python's thousand stack frames for each
_MOST_FILES = 10_000  # of one run, each counted every time it is included

_NO_BUCKETS = "its bucket is not mounted here"

# None of their configurables needs a decorator, so an unknown bare name cannot be theirs.
_UNDECORATED = frozenset({"seqio", "optax", "flax", "jax", "numpy", "tensorflow", "t5x", MAIN, "__gin__"})


def read(
    spec: RunSpec,
    *,
    t5x_parent: Path | None,
    texts: Mapping[Path, str] | None = None,
    snapshot: Snapshot | None = None,
    file_facts: FileFacts | None = None,
) -> GinProgram:
    """Reads everything that a run would read.

    Args:
      spec: gin files, bindings, search paths and python path; relative paths start from its ``cwd``.
      t5x_parent: the folder that holds the run's package ``t5x``; None for none.
      texts: the texts to read in place of files, by the files' real paths.
      snapshot: the known facts about configurables, from a run with the same T5X and module path; None to begin anew.
      file_facts: the known facts about files, from a run in the same folder with the same T5X; None to begin anew.

    Returns:
      The program. No content of a file makes this raise; see ``GinProgram.problems``.
    """
    snapshot = snapshot or Snapshot(t5x_parent, ModuleFinder(module_path(spec), t5x_parent))
    return _GinReader(spec, snapshot, file_facts or FileFacts(spec.cwd, snapshot.t5x_parent), texts or {}).read()


class _OpenFile:
    """A file whose statements are being read; kept in a list, because deep includes would exhaust Python's stack.

    Attributes:
      found: the file.
      chain: the include statements that led to it, outermost first.
      scope: its imports.
      statements: the statements that are left, with their indices.
      errors: the syntax errors that are left.
      resolved: see :class:`FileFacts`.
    """

    def __init__(
        self, found: FoundFile, text: str, chain: tuple[Location, ...], scope: FileScope, facts: FileFacts
    ) -> None:
        self.found = found
        self.chain = chain
        self.scope = scope
        statements, errors = parsing.parse(text)
        self.statements = enumerate(statements)
        self.errors = list(errors)
        self.resolved = facts.resolved.setdefault(text, {})

    def at(self, line: int) -> Location:
        return Location(self.found.shown, line, self.chain)


class _GinReader:
    """The state of one reading."""

    def __init__(self, spec: RunSpec, snapshot: Snapshot, facts: FileFacts, instead: Mapping[Path, str]) -> None:
        self._spec = spec
        self._t5x_parent = snapshot.t5x_parent
        self._instead = instead
        self._modules = snapshot.finder
        buckets = Path(os.path.abspath(spec.settings.gcs_root)) if spec.settings.gcs_root else None
        self._facts = facts
        self._files = facts.finder(spec.search_paths, self._modules, buckets)
        self._snapshot = snapshot
        self._registry = Registry(canonical)
        self._statements: list[Statement] = []
        self._problems: list[Problem] = []
        self._opened: list[str] = []
        self._texts: dict[str, str] = {}
        self._open: list[_OpenFile] = []
        self._unknown_imports: dict[str, None] = {}
        self._bare_unknown: dict[str, None] = {}
        self._doubts: list[str] = []
        self._in_clone: dict[str, str] = {}

    def read(self) -> GinProgram:
        for name in self._spec.gin_files:
            self._enter(name, Location(name, 0), chain=())
            self._read_open_files()
        scope = FileScope(self._registry)
        for number, text in enumerate(self._spec.bindings, start=1):
            statements, errors = parsing.parse(text)
            for error in errors:
                self._problem(ProblemKind.SYNTAX, Location(BINDINGS, number), error.text, error.message)
            for raw in statements:
                self._statement(raw, scope, Location(BINDINGS, number))
                self._read_open_files()
        program = self._program()
        # Its unbound macros may be constants that a module defines.
        names = [name for name, _ in program.undefined_macros]
        module = definer_of_constants(self._snapshot.sources, self._unknown_imports) if names else None
        if module is None:
            return program
        doubt = f"whether {', '.join(names)} can be read: {module} may define constants, which are read like macros"
        not_checked = (*program.not_checked, doubt)
        return dataclasses.replace(program, not_checked=not_checked, possible_constants=frozenset(names))

    def _program(self) -> GinProgram:
        return GinProgram(
            spec=self._spec,
            files=tuple(dict.fromkeys(self._opened)),
            statements=tuple(self._statements),
            problems=tuple(self._problems),
            not_checked=tuple(self._not_checked()),
            t5x_parent=str(self._t5x_parent) if self._t5x_parent else None,
            texts=self._texts,
            snapshot=self._snapshot,
            file_facts=self._facts,
            in_clone=self._in_clone,
        )

    def _not_checked(self) -> Iterator[str]:
        yield from dict.fromkeys(self._doubts)
        if self._bare_unknown:
            yield (
                f"whether {', '.join(self._bare_unknown)} can be configured: only the import of "
                f"{', '.join(self._unknown_imports)} shows what is registered there"
            )

    def _problem(
        self, kind: ProblemKind, where: Location, subject: str, detail: str = "", names: tuple[str, ...] = ()
    ) -> None:
        self._problems.append(Problem(kind, where, subject, detail, names))

    def _enter(self, target: str, where: Location, chain: tuple[Location, ...]) -> str | None:
        """Opens a file that ``where`` names, to be read next. Returns its display name; None if it cannot be opened."""
        found = self._files.find(target)
        if isinstance(found, NoGinFile):
            detail = _NO_BUCKETS if found.kind is ProblemKind.UNREACHABLE_FILE else found.folder
            self._problem(found.kind, where, target, detail, found.names)
            if found.kind is ProblemKind.UNREACHABLE_FILE:
                asked = "" if where.line == 0 else f", which {where} includes"
                self._doubts.append(f"what {found.names[0]}{asked} holds: {_NO_BUCKETS}")
            return None
        if where.line != 0 and not self._may_show(found.path):
            reason = "it lies outside of the project and is not a .gin file, so lint does not read it"
            self._problem(ProblemKind.UNREADABLE_FILE, where, found.shown, reason)
            return None
        if found.out_of_reach:
            hidden = found.out_of_reach[0]
            self._doubts.append(f"whether there is {hidden}, to be read in place of {found.shown}: {_NO_BUCKETS}")
        if found.in_clone:
            self._in_clone[target] = str(found.path)
        text = self._text(found, target, where)
        if text is not None:
            self._opened.append(found.shown)
            self._texts[found.shown] = text
            self._open.append(_OpenFile(found, text, chain, FileScope(self._registry), self._facts))
        return found.shown

    def _may_show(self, path: Path) -> bool:
        """Returns whether findings may quote a file.

        They may not quote a file of the machine that an include or a link merely names.
        """
        spec, real = self._spec, self._facts.real_path(path)
        if os.path.splitext(real)[1] == ".gin":
            return True
        folders = (Path(spec.cwd, folder) for folder in (".", *spec.search_paths, *spec.python_path))
        return any(Path(real).is_relative_to(self._facts.real_path(folder)) for folder in folders)

    def _text(self, found: FoundFile, target: str, where: Location) -> str | None:
        """Returns the text of a file; None if it cannot be read, or is already being read."""
        paths = [file.found.path for file in self._open]
        if found.path in paths or len(self._opened) >= _MOST_FILES:
            loop = [*(file.found.shown for file in self._open), found.shown]
            self._problem(ProblemKind.INCLUDE_CYCLE, where, target, names=tuple(loop[-10:]))
            return None
        try:
            if len(paths) >= _DEEPEST_INCLUDE:
                raise OSError(0, f"it is included through {len(paths)} files, more than Python's stack can hold")
            instead = self._instead.get(Path(os.path.realpath(found.path))) if self._instead else None
            return self._facts.text(found.path) if instead is None else instead
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
        except OSError as error:
            reason = error.strerror or str(error)
        self._problem(ProblemKind.UNREADABLE_FILE, where, found.shown, reason)
        return None

    def _read_open_files(self) -> None:
        """Reads the innermost open file, then goes on with the one that includes it, until none is left."""
        while self._open:
            file = self._open[-1]
            for index, raw in file.statements:
                line = raw.location.line_num
                if file.errors:
                    self._errors_above(line, file)
                if (known := file.resolved.get(index)) is not None:
                    make, fields, registered = known
                    for name, target in registered:
                        self._registry.register(name, target)
                    self._statements.append(make(Location(file.found.shown, line, file.chain), *fields))
                    continue
                before = len(self._registry.calls)
                self._statement(raw, file.scope, file.at(line))
                if self._open[-1] is not file:  # it was an include
                    break
                if file.chain and isinstance(raw, (config_parser.BindingStatement, config_parser.BlockDeclaration)):
                    self._remember(index, file, self._registry.calls[before:])
            else:
                self._errors_above(sys.maxsize, file)
                self._open.pop()

    def _remember(self, index: int, file: _OpenFile, registered: Sequence[tuple[str, str]]) -> None:
        """Keeps the last statement for other configs that include its file, if its names mean the same in all of them.

        That is so if the file's own imports give them their meanings, and not the names registered before.
        """
        if file.scope.dynamic and not file.scope.lacks_symbol:
            last = self._statements[-1]
            fields = tuple(getattr(last, field.name) for field in dataclasses.fields(last)[1:])
            file.resolved[index] = type(last), fields, registered

    def _errors_above(self, line: int, file: _OpenFile) -> None:
        while file.errors and file.errors[0].line < line:
            error = file.errors.pop(0)
            self._problem(ProblemKind.SYNTAX, file.at(error.line), error.text.strip(), error.message)

    def _statement(self, raw: Any, scope: FileScope, where: Location) -> None:
        if isinstance(raw, config_parser.BindingStatement):
            self._binding(raw, scope, where)
        elif isinstance(raw, config_parser.ImportStatement):
            self._import(raw, scope, where)
        elif isinstance(raw, config_parser.IncludeStatement):
            here = Location(where.file, where.line)
            file = self._enter(raw.filename, where, (*where.included_from, here))
            self._statements.append(Include(where, raw.filename, file))
        else:
            target = self._resolve(raw.selector, scope, where)
            self._statements.append(Block(where, raw.scope, raw.selector, target or raw.selector, target is not None))

    def _import(self, raw: config_parser.ImportStatement, scope: FileScope, where: Location) -> None:
        if raw.is_from and raw.module.startswith("__gin__."):
            if raw.module != "__gin__.dynamic_registration" or raw.alias:
                self._problem(ProblemKind.BAD_IMPORT, where, raw.module, "Gin has no such feature")
            elif scope.dynamic:
                self._problem(ProblemKind.REPEATED_REGISTRATION, where, raw.module)
            elif scope.imports:
                names = tuple(str(i) for i in scope.imports)
                self._problem(ProblemKind.LATE_REGISTRATION, where, raw.module, names=names)
                scope.enable_dynamic_registration()  # to judge the rest of the file by the intended meaning
                for statement in list(scope.imports):
                    scope.add(statement)
            else:
                scope.enable_dynamic_registration()
            return
        name = raw.bound_name()
        statement = Import(where, raw.module, name, raw.is_from, raw.alias)
        self._statements.append(statement)
        if scope.dynamic and name == "gin":
            self._problem(ProblemKind.BAD_IMPORT, where, raw.module, "Gin keeps the name gin for itself")
            return
        scope.add(statement)
        if raw.module == MAIN:
            return
        if raw.module.split(".")[0] not in _UNDECORATED:
            self._unknown_imports.setdefault(raw.module)
        if self._modules.find(raw.module) is None:
            before = [i.module for i in self._statements[:-1] if isinstance(i, Import)]
            opener = self._snapshot.sources.opener(raw.module, before)
            if opener is not None:
                self._doubts.append(
                    f"whether {raw.module} can be imported: {opener} changes where Python looks for modules"
                )
                return
            part = self._modules.missing_part(raw.module)
            self._problem(ProblemKind.MISSING_MODULE, where, raw.module, part)

    def _binding(self, raw: config_parser.BindingStatement, scope: FileScope, where: Location) -> None:
        value = self._value(raw.value, scope, where)
        if not raw.arg_name:
            name = f"{raw.scope}/{raw.selector}" if raw.scope else raw.selector
            self._statements.append(MacroBinding(where, name, value))
            return
        target = self._resolve(raw.selector, scope, where)
        if target == "gin.macro" and raw.arg_name == "value":
            self._statements.append(MacroBinding(where, raw.scope, value))
            return
        self._statements.append(
            Binding(where, raw.scope, raw.selector, raw.arg_name, value, target or raw.selector, target is not None)
        )

    def _value(self, value: Any, scope: FileScope, where: Location) -> Any:
        """Returns the value with its references resolved."""
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, Reference):
            target = self._resolve(value.selector, scope, where)
            return Reference(value.scope, value.selector, value.called, target)
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
            missing = (resolution.missing_symbol, scope.names)
            self._once(Problem(ProblemKind.SYMBOL_NOT_IMPORTED, where, selector, *missing))
        elif resolution.candidates:
            self._problem(ProblemKind.AMBIGUOUS_SELECTOR, where, selector, names=resolution.candidates)
        elif not self._surely_unknown(selector):
            self._bare_unknown.setdefault(selector)
        else:
            self._once(Problem(ProblemKind.UNKNOWN_SELECTOR, where, selector))
        return None

    def _once(self, problem: Problem) -> None:
        """Adds a problem with a selector; in a block, the head and each line name the same one, reported once."""
        at, last = problem.location, self._problems[-1] if self._problems else None
        if (
            last is None
            or (last.kind, last.subject, last.location.file) != (problem.kind, problem.subject, at.file)
            or at.line - last.location.line > 1
        ):
            self._problems.append(problem)

    @functools.cache  # noqa: B019  a reader lives as long as one reading
    def _may_register(self, modules: tuple[str, ...]) -> bool:
        return may_register(self._snapshot.sources, modules)

    def _surely_unknown(self, selector: str) -> bool:
        """Returns whether no decorator in any of the user's modules can register this name.

        That is the case if no module has such a decorator, or if the name means T5X's binary or a part of T5X.
        """
        aliases = {i.name for i in self._statements if isinstance(i, Import) and i.module == MAIN}
        return (
            not self._may_register(tuple(self._unknown_imports))
            or selector.split(".")[0] in aliases
            or ("." in selector and bool(self._snapshot.suffixes(selector)))
        )
