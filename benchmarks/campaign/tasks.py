"""Mutants of task modules: each part of the syntax tree by each mistake that can be made with its kind."""

import ast
from collections.abc import Iterator

from .mutant import PROJECT, Case, Mutant
from .mutations import Mutation, mutations_of
from .source import Source

_OF_EVALUATION = ("metric_fns", "postprocess_fn")
_SHORTEST = 4
"""The least number of characters of a name that a message does not contain by chance."""


def of_tasks(case: Case) -> Iterator[Mutant]:
    """Yields mutants of the modules whose tasks a case reads; those of metrics only if it computes any."""
    for file in case.modules:
        source = Source((PROJECT / file).read_text(encoding="utf-8"))
        evaluated = _called_in_evaluation(source)
        for node in ast.walk(source.tree):
            if not case.has_metrics and any(each in evaluated for each in (node, *source.above(node))):
                continue
            for mutation in mutations_of(source, node):
                text = source.replaced(*mutation.changes)
                if text is not None:
                    yield _mutant(case, file, source, mutation, text)


def _called_in_evaluation(source: Source) -> set[ast.AST]:
    """Returns the keywords that only an evaluation reads, and the functions that they name."""
    keywords = {n for n in ast.walk(source.tree) if isinstance(n, ast.keyword) and n.arg in _OF_EVALUATION}
    names = {n.id for keyword in keywords for n in ast.walk(keyword) if isinstance(n, ast.Name)}
    functions = {n for n in source.tree.body if isinstance(n, ast.FunctionDef) and n.name in names}
    return keywords | functions


def _mutant(case: Case, file: str, source: Source, mutation: Mutation, text: str) -> Mutant:
    node = mutation.changes[0][0]
    around = (node, *source.above(node))
    # Python reports a mistake in a statement of several lines at its first line.
    statement = next((each for each in around if isinstance(each, ast.stmt)), node)
    functions = [each.name for each in around if isinstance(each, ast.FunctionDef)]
    functions += source.readers(statement)
    near = (statement, *(each for each in around[:2] if hasattr(each, "lineno")))
    places = [f"{file}:{line}" for line in sorted(set(map(source.line, near)))]
    names = [name for name in (*mutation.names, *functions) if len(name) >= _SHORTEST]
    old, new = (" ".join(each.split())[:60] for each in (source.of(node), mutation.changes[0][1]))
    what = f"{file}:{source.line(node)} {old} -> {new or 'nothing'}"
    line = source.line(node) + mutation.below
    return Mutant(case.name, f"task: {mutation.word}", what, {file: text}, file, line, (*names, *places))
