"""Files in tests/ are imported by their bare names, so no two have the same: the second import would get the first."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

NAMED_BY_PYTEST = {"conftest.py"}


def test_no_two_files_of_the_tests_have_the_same_name(repository: Path) -> None:
    folders = defaultdict(list)
    for file in (repository / "tests").rglob("*.py"):
        folders[file.name].append(file.parent.relative_to(repository).as_posix())
    shared = {name: where for name, where in folders.items() if len(where) > 1 and name not in NAMED_BY_PYTEST}
    assert not shared
