"""Linting in a Python that cannot run T5X, such as that of a pre-commit hook or a small CI image."""

from __future__ import annotations

import dataclasses

from t5x_harness.lint.modules import ModuleFinder, module_path
from t5x_harness.lint.problems import Problem, ProblemKind
from t5x_harness.lint.program import GinProgram

_STACK = "seqio"  # what every T5X imports


def leave_modules_open(program: GinProgram) -> GinProgram:
    """What was read, without complaints about packages that are missing here if the run has to start elsewhere anyway.

    Args:
      program: of a config that is only linted here. One that is about to run here needs its packages here.
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
    """Whether all of a package is missing; one that is there and lacks a part is misspelt in any Python."""
    return problem.kind is ProblemKind.MISSING_MODULE and "." not in problem.detail
