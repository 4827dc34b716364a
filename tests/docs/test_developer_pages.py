"""docs/architecture.md, CONTRIBUTING.md and the README of tests name files that there are, and their examples work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from page_blocks import blocks

PAGES = ("docs/architecture.md", "CONTRIBUTING.md", "tests/README.md", "CHANGELOG.md")


@pytest.fixture(scope="module")
def texts(repository: Path) -> dict[str, str]:
    return {name: (repository / name).read_text() for name in PAGES}


def named_paths(text: str) -> set[str]:
    """What looks like a path, in code between backquotes; placeholders and paths of users are none."""
    code = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    return {word for word in code if re.fullmatch(r"[\w.][\w./-]*(/|\.(py|md|toml|txt|ini))", word)}


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_is_named_exists(texts: dict[str, str], repository: Path, name: str) -> None:
    paths = named_paths(texts[name])
    roots = (repository, repository / "t5x_harness", repository / "tests")
    assert [path for path in sorted(paths) if not any((root / path).exists() for root in roots)] == []
    assert len(paths) > 15 or name == "CHANGELOG.md"


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(texts: dict[str, str], repository: Path, name: str) -> None:
    targets = [t for t in re.findall(r"\]\(([^)\s#]+)[^)]*\)", texts[name]) if "://" not in t]
    assert [t for t in targets if not ((repository / name).parent / t).resolve().exists()] == []


def test_every_room_has_its_line_and_its_place(texts: dict[str, str], repository: Path) -> None:
    page = texts["docs/architecture.md"]
    rooms = {path.parent.name for path in (repository / "t5x_harness").glob("*/__init__.py")} - {"embedded"}
    top = {"plugin", "fixtures"}
    rows = set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE))
    assert rows == rooms | top | {"sample_tasks"}
    (drawn,) = blocks(page, "mermaid")
    assert set(re.findall(r"[a-z_]{3,}(?:\.py)?", " ".join(re.findall(r'"([^"]+)"', drawn)))) == (
        rooms | top | {"variables.py", "version.py"}
    )


def test_the_environments_and_modules_of_the_commands_are_there(texts: dict[str, str], repository: Path) -> None:
    lines = [line for text in texts.values() for block in blocks(text, "shell") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    environments = {line[line.index("-e") + 1] for line in words if line[:2] == ["tox", "run"]}
    assert environments >= {"fast", "tests"}
    assert [e for e in environments if f"[testenv:{e}]" not in (repository / "tox.ini").read_text()] == []
    paths = {word for line in words if line[:1] == ["pytest"] for word in line if word.startswith("tests/")}
    assert paths
    assert [path for path in paths if not (repository / path).exists()] == []
    extras = re.search(r'"\.\[([\w,]+)\]"', texts["CONTRIBUTING.md"])
    assert extras is not None
    project = (repository / "pyproject.toml").read_text()
    assert [e for e in extras[1].split(",") if not re.search(rf"^{e} = \[", project, re.MULTILINE)] == []


def test_every_folder_of_tests_is_listed(texts: dict[str, str], repository: Path) -> None:
    rows = "".join(re.findall(r"^\| (`.*?) \|", texts["tests/README.md"], re.MULTILINE))
    folders = {path.name for path in (repository / "tests").iterdir() if path.is_dir() and path.name[0] not in "_."}
    assert set(re.findall(r"`(\w+)/`", rows)) == folders
