"""The imports that a gin file lacks, where only one statement can be meant."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.gin.problems import ProblemKind
from t5x_harness.gin.program import Binding, Block, GinProgram, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import references_in


def import_of_symbol(program: GinProgram, snapshot: Snapshot, symbol: str, selector: str) -> str | None:
    """Returns the import that gives ``symbol`` its meaning in ``selector``, as other files or T5X have it."""
    elsewhere = {str(statement) for statement in program.imports if statement.name == symbol}
    if elsewhere:
        return elsewhere.pop() if len(elsewhere) == 1 else None
    targets = snapshot.suffixes(selector)
    return import_of_module(snapshot, targets[0], selector) if len(targets) == 1 else None


def import_of_module(snapshot: Snapshot, target: str, selector: str) -> str | None:
    """Returns the import under which ``selector`` means ``target``: ``from t5x import utils`` for ``utils.X``."""
    module = snapshot.module_of(target)
    package, _, name = (module or "").rpartition(".")
    return f"from {package} import {name}" if package and f"{package}.{selector}" == target else None


def imports_of_file(program: GinProgram, snapshot: Snapshot, file: str) -> tuple[str, ...] | None:
    """Returns the imports that a file needs to switch on dynamic registration; None if one is unknown."""
    needed: dict[str | None, None] = {}
    for selector, target in _selectors(program, snapshot, file):
        needed.setdefault(import_of_module(snapshot, target, selector) if target else None)
    given = {str(i) for i in program.imports if i.location.file == file}
    return None if None in needed else tuple(sorted(s for s in needed if s is not None and s not in given))


def _selectors(program: GinProgram, snapshot: Snapshot, file: str) -> Iterator[tuple[str, str | None]]:
    """Yields the names that a file uses, and what each means; None if that cannot be known."""
    for statement in program.statements:
        if statement.location.file != file:
            continue
        if isinstance(statement, (Binding, Block)) and statement.resolved:
            yield statement.selector, statement.target
        if isinstance(statement, (Binding, MacroBinding)):
            yield from ((r.selector, r.target) for r in references_in(statement.value) if r.target is not None)
    for problem in program.problems:
        if problem.kind is ProblemKind.UNKNOWN_SELECTOR and problem.location.file == file:
            targets = snapshot.suffixes(problem.subject)
            yield problem.subject, targets[0] if len(targets) == 1 else None
