"""The emulated Google Cloud knows nothing of T5X: what jobs run is told to it by a module that the options name."""

from __future__ import annotations

import ast
from pathlib import Path

BELOW = (
    "buckets.addresses",
    "buckets.emulated",
    "google",
    "slices",
    "spec",
    "system",
    "variables",
    "upstream.google_sdk",
    "upstream.tensorflow",
    "upstream.grpc",
)
"""What it may import of the package."""


def test_it_imports_nothing_that_knows_t5x(repository: Path) -> None:
    wrong = []
    for path in sorted((repository / "t5x_harness" / "google").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("t5x_harness"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [f"{alias.name}." for alias in node.names if alias.name.startswith("t5x_harness")]
            else:
                continue
            wrong += [
                f"{path.name}:{node.lineno} {name}" for name in names if not name.partition(".")[2].startswith(BELOW)
            ]
    assert wrong == []
