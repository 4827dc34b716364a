"""Docs and code are in plain English: words that readers have to decode stay out of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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
"""In names, docstrings, comments and messages; an underscore divides words, too."""


def test_names_docstrings_and_messages_use_none_of_the_banned_words(repository: Path) -> None:
    folders = ("t5x_harness", "plugin", "fixtures", "sample_tasks")
    files = [path for folder in folders for path in (repository / folder).rglob("*.py") if path.name != "pieces.py"]
    files += (repository / "t5x_harness").rglob("*.schema.json")
    assert len(files) > 500
    pattern = re.compile(rf"(?<![a-z])({IN_CODE})(?![a-z])", re.IGNORECASE)
    found = [
        f"{path.relative_to(repository)}: {match.group()}"
        for path in files
        for match in pattern.finditer(" ".join(re.sub(r"[_#]", " ", path.read_text()).split()))
    ]
    assert found == [], "see the glossary in CONTRIBUTING.md"


def test_entries_of_the_embedded_runtime_s_docstrings_are_written_in_one_way(repository: Path) -> None:
    """Indented by four and in lower case, unless a name begins them; code in double backticks."""
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
