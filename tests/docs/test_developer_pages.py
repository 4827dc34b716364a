"""Developers' pages name only what exists, the tour links to code, and pages and code are in plain English."""

import ast
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
    """Returns the words between backquotes that look like paths, but not placeholders and users' paths."""
    code = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    return {word for word in code if re.fullmatch(r"[\w.][\w./-]*(/|\.(py|md|toml|txt|ini))", word)}


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_is_named_exists(texts: dict[str, str], repository: Path, name: str) -> None:
    paths = named_paths(texts[name])
    roots = (repository, repository / "t5x_harness", repository / "tests")
    assert [path for path in sorted(paths) if not any((root / path).exists() for root in roots)] == []
    assert len(paths) > 15 or name == "CHANGELOG.md"


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


TOUR = Path(__file__).parents[2] / "t5x_harness/embedded/t5x/TOUR.md"
STOPS = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", TOUR.read_text())


def test_the_tour_can_be_walked_in_one_sitting() -> None:
    assert 40 <= len(TOUR.read_text().splitlines()) <= 70
    assert len(STOPS) > 30


@pytest.mark.parametrize(("name", "file"), STOPS)
def test_a_stop_is_defined_in_the_file_it_links_to(name: str, file: str) -> None:
    target = TOUR.parent / file
    if target.suffix != ".py":
        assert target.name == name
        assert target.is_file()
        return
    nodes = ast.walk(ast.parse(target.read_text()))
    assert name in {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


BANNED = (
    r"mend(s|ed|ing)?|heed(s|ed)?|told|what (came|comes) of|those aside|whoever|nobody|private Google|led to|"
    r"leads? (past|there|its)|made[- ]up|cannot be had|(?<!there )is no [a-z]+|shrunken|as ever|behaviour|colours?|"
    r"initialised"
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def test_the_pages_use_none_of_the_banned_words(repository: Path) -> None:
    pages = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md"), repository / "tests" / "README.md"]
    assert len(pages) > 150
    found = [
        f"{page.name}: {match.group()}"
        for page in pages
        for match in re.finditer(rf"\b({BANNED})\b", " ".join(FENCED.sub("", page.read_text()).split()), re.IGNORECASE)
    ]
    assert found == [], "see the glossary in CONTRIBUTING.md"


IN_CODE = (
    r"mend(s|ed|ing)?|heed(s|ed)?|told|what (came|comes) of|those aside|whoever|private google|"
    r"(clients|is|are|was|were) led to|made[- ]up|cannot be had|likeness|doors?|shrunken|"
    r"(?<!there )(?<!here )is no (?!longer|more|such|other|use|way|reason|need|doubt)[a-z]+"
)
"""The words that names, docstrings, comments and messages must not contain. Underscores also separate words."""


def test_names_docstrings_and_messages_use_none_of_the_banned_words(repository: Path) -> None:
    folders = ("t5x_harness", "plugin", "fixtures", "sample_tasks")
    files = [path for folder in folders for path in (repository / folder).rglob("*.py")]
    files += (repository / "t5x_harness").rglob("*.schema.json")
    assert len(files) > 500
    pattern = re.compile(rf"(?<![a-z])({IN_CODE})(?![a-z])", re.IGNORECASE)
    words = re.compile(r'^WORDS = """.*?"""|[_#]', re.DOTALL | re.MULTILINE)  # a list of words is no sentence
    found = [
        f"{path.relative_to(repository)}: {match.group()}"
        for path in files
        for match in pattern.finditer(" ".join(words.sub(" ", path.read_text()).split()))
    ]
    assert found == [], "see the glossary in CONTRIBUTING.md"


def test_entries_of_the_embedded_runtime_s_docstrings_are_written_in_one_way(repository: Path) -> None:
    """They are indented by four and in lower case unless a name begins them, with code in double backquotes."""
    names = r"(?:[A-Z]+\b|SeqIO|Gin|None|True|False|TensorFlow|TensorBoard|Fiddle|Adafactor|Python)"
    wrong = re.compile(rf"(?m)^(?: {{2}}\w+: | {{4}}\w+: (?!{names})[A-Z])|(?<!`)`[^`]+`(?!`)|:\w+:`")
    nodes = ast.Module | ast.ClassDef | ast.FunctionDef
    found, entries = [], 0
    for path in (repository / "t5x_harness/embedded/t5x").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, nodes):
                continue
            _, *listed = re.split(r"\n(?:Args|Attributes|Raises):\n", ast.get_docstring(node) or "")
            entries += len(listed)
            if bad := wrong.search("\n".join(listed)):
                found.append(f"{path.relative_to(repository)}: {bad[0].strip()!r}")
    assert entries > 100
    assert found == []
