"""The examples in docs/gcs-paths.md do what they say."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def blocks(repository: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (repository / "docs" / "gcs-paths.md").read_text(), re.DOTALL)


def test_a_command_sees_the_store(blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    exec(compile(blocks[0], "docs/gcs-paths.md", "exec"), {})


@pytest.mark.journey
def test_a_test_has_a_bucket_at_gcs(blocks: list[str], pytester: pytest.Pytester) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    pytester.makepyfile(test_on_gcs=blocks[1])
    found = pytester.runpytest_subprocess().parseoutcomes()
    assert found.get("passed", 0) + found.get("skipped", 0) == 2
    assert found["passed"] >= 1
