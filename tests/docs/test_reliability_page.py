"""docs/reliability.md shows what was left after long use, in tables that its commands write."""

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["soak", "serve"])
def test_its_tables_are_written_by_their_commands(page: str, repository: Path, name: str) -> None:
    only = "runs" if name == "soak" else name
    command = re.search(
        rf"^`python (benchmarks/soak\.py) --only {only} .*--write docs/reliability\.md`$", page, re.MULTILINE
    )
    assert command is not None
    assert (repository / command[1]).exists()
    table = page.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip().splitlines()
    assert len(table) > 5


def test_nothing_was_wrong_and_nothing_was_left(page: str) -> None:
    rows = {
        row[0]: row[1:]
        for row in ([c.strip() for c in line.strip("|").split("|")] for line in page.splitlines() if "|" in line)
    }
    assert rows["runs with an outcome that was not expected"][2] == "0"
    assert rows["wrong answers"] == ["0"]
    assert rows["processes and ports left"] == ["0, 0"]
    assert rows["processes"][-1] == "1"  # the script itself
    assert rows["ports"][-1] == "0"
