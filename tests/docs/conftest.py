"""The pages, and the page that a module of tests is about: ``test_tpu_vms_page.py`` is about ``docs/tpu-vms.md``."""

from collections.abc import Mapping
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pages(repository: Path) -> Mapping[str, str]:
    """Returns the texts of README and of all pages of docs/, by their paths."""
    files = [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]
    return {str(file.relative_to(repository)): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, pages: Mapping[str, str]) -> str:
    """Returns the text of the module's page."""
    name = request.module.__name__.removeprefix("test_").removesuffix("_page").replace("_", "-")
    return pages[f"docs/{name}.md"]
