"""The sample trainer's project, as a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """A copy, so that nothing is left in the source tree."""
    return Path(shutil.copytree(repository / "sample_tasks" / "trainer_package", tmp_path / "project"))
