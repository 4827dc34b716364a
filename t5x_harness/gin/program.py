"""The statements of a run's gin files in the order in which T5X executes them, and their effect."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from t5x_harness.gin.file_facts import FileFacts
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.values import Macro, Reference, is_required, macros_in, references_in
from t5x_harness.spec import Location, Mode, RunSpec

BINDINGS = "--gin bindings"
"""The file name in locations of statements that were given on the command line or with the run."""

MAIN = "__main__"

ENTRY_POINTS: Mapping[Mode, tuple[str, str]] = {
    Mode.TRAIN: ("t5x.train", "train"),
    Mode.EVAL: ("t5x.eval", "evaluate"),
    Mode.INFER: ("t5x.infer", "infer"),
}
"""The module that T5X runs as ``__main__`` in each mode, and the function in it that the config binds."""

ENTRIES: Mapping[str, Mode] = {f"{MAIN}.{function}": mode for mode, (_, function) in ENTRY_POINTS.items()}
"""The full name, in this package, of the function that T5X calls in each mode."""


@dataclasses.dataclass(frozen=True)
class Import:
    """An import statement; ``name`` is the symbol that it binds in its file."""

    location: Location
    module: str
    name: str
    is_from: bool
    alias: str | None

    def __str__(self) -> str:
        tail = f" as {self.alias}" if self.alias else ""
        if self.is_from:
            package, _, last = self.module.rpartition(".")
            return f"from {package} import {last}{tail}"
        return f"import {self.module}{tail}"


@dataclasses.dataclass(frozen=True)
class Include:
    """An include statement and the file that it found; None if it found none."""

    location: Location
    target: str
    file: str | None


@dataclasses.dataclass(frozen=True)
class Block:
    """The head of a block, ``scope/selector:``, in which Gin looks up the name before its bindings.

    ``target`` and ``resolved`` mean the same as in :class:`Binding`.
    """

    location: Location
    scope: str
    selector: str
    target: str
    resolved: bool = True


@dataclasses.dataclass(frozen=True)
class Binding:
    """``scope/selector.param = value``.

    ``target`` is the full name of the configurable, regardless of the file's alias for it. If static reading cannot
    know it, ``resolved`` is false and ``target`` is the selector as written.
    """

    location: Location
    scope: str
    selector: str
    param: str
    value: Any
    target: str
    resolved: bool = True

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the bound value; a later binding with the same key replaces this one."""
        return self.scope, self.target, self.param

    def __str__(self) -> str:
        scope = f"{self.scope}/" if self.scope else ""
        return f"{scope}{self.selector}.{self.param}"


@dataclasses.dataclass(frozen=True)
class MacroBinding:
    """``NAME = value``; the name holds its scopes."""

    location: Location
    name: str
    value: Any

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the bound value; a later binding with the same key replaces this one."""
        return self.name, "gin.macro", "value"

    def __str__(self) -> str:
        return self.name


Statement = Import | Include | Block | Binding | MacroBinding


@dataclasses.dataclass(frozen=True)
class GinProgram:
    """A run's gin files and bindings, read but not executed.

    Attributes:
      spec: the run that was read.
      files: the names of the files, each once, in the order in which they were opened.
      statements: the statements in the order of execution.
      problems: the problems that T5X would meet while reading.
      not_checked: the checks that static reading cannot make, in words.
      t5x_parent: the folder with the package ``t5x`` that was read; None for none.
      texts: the texts of the files by their names, with line feeds as line ends.
      in_clone: the paths, in the T5X in use, of files that were requested in a clone of T5X's repository that only the
        job has. The keys are the names used in the requests.
      snapshot: the snapshot that it was read with, for :func:`~t5x_harness.gin.reading.snapshot_of`; None for none.
      file_facts: the known facts about its files; None to find them out.
      possible_constants: macros without a binding that one of the user's modules may define by ``gin.constant``.
    """

    spec: RunSpec
    files: tuple[str, ...]
    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...] = ()
    not_checked: tuple[str, ...] = ()
    t5x_parent: str | None = None
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    snapshot: object = dataclasses.field(default=None, repr=False, compare=False)  # its module imports this one
    file_facts: FileFacts | None = dataclasses.field(default=None, repr=False, compare=False)
    possible_constants: frozenset[str] = frozenset()
    in_clone: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every statement was read, so that a missing statement means something."""
        return not any(p.loses_statements for p in self.problems)

    def problems_of(self, kind: ProblemKind) -> tuple[Problem, ...]:
        """Returns the problems of one kind, in order."""
        return tuple(problem for problem in self.problems if problem.kind is kind)

    @property
    def clone_doubts(self) -> tuple[str, ...]:
        """The doubts of every stage that reads files of a clone of T5X's repository."""
        if not self.in_clone:
            return ()
        asked = ", ".join(self.in_clone)
        return (f"whether the job has {asked}: here is no such clone of T5X's repository, and the T5X in use was read",)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """Every parameter binding, including overridden ones, in the order of execution."""
        return tuple(s for s in self.statements if isinstance(s, Binding))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import in the order of execution."""
        return tuple(s for s in self.statements if isinstance(s, Import))

    @cached_property
    def own_lines(self) -> Mapping[str, tuple[str, ...]]:
        """The lines of the user's files by their names, without files of T5X and of installed packages."""
        return {
            file: tuple(text.removesuffix("\n").split("\n"))
            for file, text in self.texts.items()
            if not self.is_installed(file)
        }

    @cached_property
    def _facts(self) -> FileFacts:
        return self.file_facts or FileFacts(self.spec.cwd, self.t5x_parent)

    @cached_property
    def _foreign(self) -> dict[str, bool]:
        return dict.fromkeys((BINDINGS, *self.spec.gin_files), False)

    def is_installed(self, file: str) -> bool:
        """Returns whether a file belongs to T5X or another installed package, so that the user does not change it."""
        return self._facts.is_installed(file)

    def is_foreign(self, file: str) -> bool:
        """Returns whether a file belongs to a library, and is not one that the user named."""
        if file not in self._foreign:
            self._foreign[file] = self.is_installed(file)
        return self._foreign[file]

    def name_of(self, file: str) -> str:
        """Returns a package's file as includes name it, ``t5x/configs/runs/finetune.gin``; others unchanged."""
        return self._facts.name_of(file)

    def is_of_t5x(self, file: str) -> bool:
        """Returns whether a file that was read is in the package ``t5x``."""
        return self._facts.is_of_t5x(file)

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str, str], list[Binding | MacroBinding]]:
        """The statements of every key, in the order of execution; the keys are in that of their first statements."""
        found: dict[tuple[str, str, str], list[Binding | MacroBinding]] = {}
        for statement in self.statements:
            if isinstance(statement, (Binding, MacroBinding)):
                found.setdefault(statement.key, []).append(statement)
        return found

    @cached_property
    def final(self) -> Mapping[tuple[str, str, str], Binding | MacroBinding]:
        """The winning statement of every key, which is the last one."""
        return {key: statements[-1] for key, statements in self.by_key.items()}

    @cached_property
    def rivals(self) -> tuple[Binding | MacroBinding, ...]:
        """The statements that share their key with others, in the order of execution."""
        sharing = {id(s): s for statements in self.by_key.values() if len(statements) > 1 for s in statements}
        return tuple(sharing[id(s)] for s in self.statements if id(s) in sharing)

    @cached_property
    def replaced(self) -> tuple[Binding | MacroBinding, ...]:
        """The statements whose key a later one binds again, in the order of execution."""
        return tuple(s for s in self.rivals if self.final[s.key] is not s)

    @cached_property
    def macros(self) -> Mapping[str, MacroBinding]:
        """The winning statement of every macro."""
        return {s.name: s for s in self.final.values() if isinstance(s, MacroBinding)}

    @cached_property
    def final_bindings(self) -> tuple[Binding, ...]:
        """The winning parameter bindings."""
        return tuple(s for s in self.final.values() if isinstance(s, Binding))

    @cached_property
    def given_values(self) -> tuple[tuple[Binding, Binding | MacroBinding], ...]:
        """The winning parameter bindings, each with the statement that gives its value; see :meth:`resolve`."""
        return tuple((binding, self.resolve(binding)) for binding in self.final_bindings)

    @cached_property
    def _macro_uses(self) -> tuple[tuple[str, Binding | MacroBinding], ...]:
        """The names of macros in final values, and the statements that contain them."""
        return tuple((macro.name, s) for s in self.final.values() for macro in macros_in(s.value))

    @cached_property
    def read_macros(self) -> frozenset[str]:
        """The macros that reach a parameter, directly or through other macros."""
        seen: set[str] = set()
        waiting = [name for name, statement in self._macro_uses if isinstance(statement, Binding)]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                if name in self.macros:
                    waiting.extend(m.name for m in macros_in(self.macros[name].value))
        return frozenset(seen)

    @cached_property
    def former_readers(self) -> Mapping[str, Binding | MacroBinding]:
        """The first statement that used each macro and was replaced by a later one with another value."""
        found: dict[str, Binding | MacroBinding] = {}
        for statement in self.replaced:
            for macro in macros_in(statement.value):
                found.setdefault(macro.name, statement)
        return found

    @cached_property
    def required_macros(self) -> tuple[MacroBinding, ...]:
        """The macros whose final value is ``%gin.REQUIRED``."""
        return tuple(m for m in self.macros.values() if is_required(m.value))

    @cached_property
    def undefined_macros(self) -> tuple[tuple[str, Binding | MacroBinding], ...]:
        """Macros that a final value uses but certainly nothing defines, each with the first statement that uses it."""
        found: dict[str, Binding | MacroBinding] = {}
        for name, statement in self._macro_uses:
            is_possible = name in self.possible_constants and not name.startswith("gin.")
            if name not in self.macros and not is_possible:
                found.setdefault(name, statement)
        return tuple(found.items())

    @cached_property
    def _uses(self) -> Mapping[str | None, tuple[tuple[Reference, Binding | MacroBinding], ...]]:
        """The references in final values by their targets, and all of them under None."""
        found: dict[str | None, list[tuple[Reference, Binding | MacroBinding]]] = {None: []}
        for statement in self.final.values():
            for reference in references_in(statement.value):
                found[None].append((reference, statement))
                if reference.target is not None:
                    found.setdefault(reference.target, []).append((reference, statement))
        return {target: tuple(uses) for target, uses in found.items()}

    def uses(self, target: str | None = None) -> Iterator[tuple[Reference, Binding | MacroBinding]]:
        """Returns the references in final values, or only those to ``target``, and the statements that contain them."""
        return iter(self._uses.get(target, ()))

    @cached_property
    def used_scopes(self) -> frozenset[str]:
        """The scopes that some reference in a final value opens: ``@big/train/X()`` opens ``big`` and ``big/train``."""
        return frozenset(s for reference, _ in self.uses() for s in scope_chain(reference.scope) if s)

    def lookup(self, target: str, param: str, scope: str = "") -> Binding | None:
        """Returns the binding from which a configurable called in ``scope`` takes a parameter; None for the default."""
        for name in reversed(scope_chain(scope)):
            winner = self.final.get((name, target, param))
            if isinstance(winner, Binding):
                return winner
        return None

    def resolve(self, statement: Binding | MacroBinding) -> Binding | MacroBinding:
        """Follows a value that is only a macro to the statement that defines it: ``x = %A`` to that of ``A``."""
        seen: set[str] = set()
        while isinstance(statement.value, Macro) and statement.value.name in self.macros:
            if statement.value.name in seen:
                return statement
            seen.add(statement.value.name)
            statement = self.macros[statement.value.name]
        return statement

    @cached_property
    def entries(self) -> tuple[Binding, ...]:
        """The first final binding of each of the binary's functions that the config binds, in order."""
        found: dict[str, Binding] = {}
        for binding in self.final_bindings:
            if binding.target.startswith(f"{MAIN}.") and binding.target.count(".") == 1:
                found.setdefault(binding.target, binding)
        return tuple(found.values())

    @cached_property
    def mode(self) -> Mode | None:
        """The mode of the first of T5X's entry functions that the config binds; None if it binds none."""
        return next((ENTRIES[b.target] for b in self.entries if b.target in ENTRIES), None)

    @cached_property
    def entry(self) -> str | None:
        """The full name of the function that :attr:`mode` calls."""
        return next((b.target for b in self.entries if b.target in ENTRIES), None)


@functools.lru_cache(maxsize=4096)
def scope_chain(scope: str) -> tuple[str, ...]:
    """Returns the scopes whose bindings a call in ``scope`` takes, weakest first: for ``a/b`` also ``""`` and ``a``."""
    parts = scope.split("/") if scope else []
    return ("", *("/".join(parts[: i + 1]) for i in range(len(parts))))
