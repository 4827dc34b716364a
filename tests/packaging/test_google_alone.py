"""The emulated Google Cloud knows nothing of T5X: what it has to know of jobs is handed in when it is started."""

from __future__ import annotations

import ast
import re
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

IMPORT = re.compile(r"\s*(from|import) t5x_harness\b")


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


def test_no_file_of_it_names_t5x_in_any_spelling(repository: Path) -> None:
    """The package's own import path may stand where it is imported, and nowhere else."""
    wrong = []
    for path in sorted((repository / "t5x_harness" / "google").rglob("*")):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            rest = IMPORT.sub("", line, count=1) if path.suffix == ".py" else line
            if re.search(r"t\W?5\W?x", rest, re.IGNORECASE):
                wrong.append(f"{path.relative_to(repository)}:{number} {line.strip()}")
    assert wrong == []
