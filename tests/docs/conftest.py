"""The page that a module of tests is about, by the module's name: ``test_tpu_vms_page.py`` is about ``tpu-vms.md``."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, repository: Path) -> str:
    """Returns the text of the page."""
    name = request.module.__name__.removeprefix("test_").removesuffix("_page").replace("_", "-")
    return (repository / "docs" / f"{name}.md").read_text(encoding="utf-8")
