"""The module that jobs take along needs nothing of the harness, and is small enough to be read."""

import ast
import sys
from pathlib import Path

NEEDED = {"absl", "gin", "jax", "t5x"}
"""T5X, and libraries that T5X itself imports."""


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a copy in another package has no neighbors"
            found.add(str(node.module).partition(".")[0])
    return found


def test_it_imports_t5x_and_what_t5x_needs(repository: Path) -> None:
    text = (repository / "t5x_harness" / "preemption.py").read_text(encoding="utf-8")
    assert imported(ast.parse(text)) - sys.stdlib_module_names == NEEDED
    assert text.count("\n") <= 300
