"""All mutants of the cases, by class; each class is a module of its own."""

from collections.abc import Iterator, Sequence

from . import checkpoints, slices, statements, values
from .mutant import CASES_OF_TASKS, Case, Mutant
from .tasks import of_tasks


def mutants_of(cases: Sequence[Case], parent: str) -> list[Mutant]:
    """Returns the mutants of the cases, each once, in an order that does not change.

    Args:
      cases: the cases.
      parent: the folder with the package ``t5x``.
    """
    found: dict[str, Mutant] = {}
    for case in cases:
        for mutant in _of(case, parent):
            found.setdefault(mutant.key, mutant)
    for case in CASES_OF_TASKS:
        for mutant in of_tasks(case):
            found.setdefault(mutant.key, mutant)
    return list(found.values())


def _of(case: Case, parent: str) -> Iterator[Mutant]:
    program = values.program_of(case, parent)
    yield from values.of_bound(case, program)
    yield from values.of_bindable(case, program, parent)
    yield from statements.of_statements(case)
    yield from slices.of_meshes(case, program)
    yield from checkpoints.of_checkpoints(case)
