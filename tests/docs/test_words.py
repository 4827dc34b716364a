"""Docs are in plain English: words that readers have to decode stay out of them."""

from __future__ import annotations

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
