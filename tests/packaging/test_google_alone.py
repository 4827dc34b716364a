"""The emulated Google Cloud knows nothing about T5X. It receives all information about jobs when it starts."""

import re
from pathlib import Path

from structure import arrows_of

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
"""The modules of the package that it may import."""

IMPORT = re.compile(r"\s*(from|import) t5x_harness\b")


def test_it_imports_nothing_that_knows_t5x(repository: Path) -> None:
    wrong = [
        f"{module}:{line} imports {other}"
        for module, imported in arrows_of(repository).items()
        for other, line in imported.items()
        if module.split(".")[0] == "google" and not other.startswith(BELOW)
    ]
    assert wrong == []


def test_no_file_of_it_names_t5x_in_any_spelling(repository: Path) -> None:
    """The package's own import path may occur only in imports."""
    wrong = []
    for path in sorted((repository / "t5x_harness" / "google").rglob("*")):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            rest = IMPORT.sub("", line, count=1) if path.suffix == ".py" else line
            if re.search(r"t\W?5\W?x", rest, re.IGNORECASE):
                wrong.append(f"{path.relative_to(repository)}:{number} {line.strip()}")
    assert wrong == []
