"""Reads a run with the T5X that it asks for."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.gin.file_facts import FileFacts
from t5x_harness.gin.files import ModuleFinder, module_path
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.program import Binding, GinProgram, MacroBinding
from t5x_harness.gin.reader import read
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import format_value
from t5x_harness.spec import Assignment, BoundValue, RunSpec


def program_of(
    spec: RunSpec, *, t5x_parent: str | Path | None = None, texts: Mapping[Path, str] | None = None
) -> GinProgram:
    """Reads a run's gin files and bindings.

    Args:
      spec: the run.
      t5x_parent: the folder that holds the package ``t5x``, or that package itself; None looks for the T5X that
        ``spec.runtime`` means.
      texts: the texts to read in place of files, by the files' real paths.

    Raises:
      RuntimeError: ``spec.runtime`` asks for a T5X that is not installed; only if ``t5x_parent`` is None.
    """
    return read(spec, t5x_parent=_parent(spec, t5x_parent), texts=texts)


class ConfigReader:
    """Reads configs while no file changes: each config once, and what is known about files for all configs together.

    Args:
      t5x_parent: see :func:`program_of`.
    """

    def __init__(self, t5x_parent: str | Path | None = None) -> None:
        self._t5x_parent = t5x_parent
        self._programs: dict[RunSpec, GinProgram] = {}
        self._known: dict[object, tuple[Snapshot, FileFacts]] = {}

    def program_of(self, spec: RunSpec) -> GinProgram:
        """Reads a run's gin files and bindings, unless it did so before. See :func:`program_of`."""
        if spec not in self._programs:
            self._programs[spec] = self.read(spec)
        return self._programs[spec]

    def read(self, spec: RunSpec) -> GinProgram:
        """Reads a run as :meth:`program_of` does, but does not keep the program for another call."""
        snapshot, facts = self._known_of(spec)
        return read(spec, t5x_parent=snapshot.t5x_parent, snapshot=snapshot, file_facts=facts)

    def _known_of(self, spec: RunSpec) -> tuple[Snapshot, FileFacts]:
        place = (spec.runtime, spec.cwd, spec.python_path, *sys.path)
        if place not in self._known:
            parent = _parent(spec, self._t5x_parent)
            snapshot = Snapshot(parent, ModuleFinder(module_path(spec), parent))
            self._known[place] = snapshot, FileFacts(spec.cwd, parent)
        return self._known[place]


def _parent(spec: RunSpec, t5x_parent: str | Path | None) -> Path:
    """Returns the folder that holds the package ``t5x``."""
    if t5x_parent is None:
        from t5x_harness.runtime.choice import runtime_of

        t5x_parent = runtime_of(spec).location
    folder = Path(t5x_parent)
    return folder.parent if folder.name == "t5x" and not (folder / "t5x").is_dir() else folder


def snapshot_of(program: GinProgram) -> Snapshot:
    """Returns the known facts about the configurables that a program may name."""
    if isinstance(program.snapshot, Snapshot):
        return program.snapshot
    parent = Path(program.t5x_parent) if program.t5x_parent else None
    return Snapshot(parent, ModuleFinder(module_path(program.spec), parent))


_STACK = "seqio"  # a package that every T5X imports


def leave_modules_open(program: GinProgram) -> GinProgram:
    """Returns a program without its problems about missing packages, if the run can only start elsewhere anyway.

    Args:
      program: the program of a config that is only linted here. To run here, it would need its packages here.
    """
    absent = {p.detail: None for p in program.problems if _is_absent_package(p)}
    if not absent or ModuleFinder(module_path(program.spec), None).find(_STACK) is not None:
        return program
    doubt = f"whether {', '.join(absent)} can be imported where T5X runs: not in this Python, which has no {_STACK}"
    return dataclasses.replace(
        program,
        problems=tuple(p for p in program.problems if not _is_absent_package(p)),
        not_checked=(doubt, *program.not_checked),
    )


def _is_absent_package(problem: Problem) -> bool:
    """Returns whether a whole package is missing; if only a part is missing, its name is misspelled in any Python."""
    return problem.kind is ProblemKind.MISSING_MODULE and "." not in problem.detail


def bound_values(program: GinProgram) -> tuple[BoundValue, ...]:
    """Returns every parameter and macro that a config binds, in the order in which they were first bound."""
    return tuple(
        BoundValue(
            name=str(winner),
            configurable=winner.target if isinstance(winner, Binding) else None,
            assignment=_assignment(winner),
            overridden=tuple(map(_assignment, overridden)),
        )
        for *overridden, winner in program.by_key.values()
    )


def _assignment(statement: Binding | MacroBinding) -> Assignment:
    return Assignment(format_value(statement.value, limit=sys.maxsize), statement.location)
