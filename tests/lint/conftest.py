from pathlib import Path

import pytest
from linting import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
