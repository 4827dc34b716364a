"""The examples in docs/gcs-paths.md do what they say."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from page_blocks import blocks


def test_a_command_sees_the_store(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    exec(compile(blocks(page, "python")[0], "docs/gcs-paths.md", "exec"), {})


@pytest.mark.journey
def test_a_test_has_a_bucket_at_gcs(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    pytester.makepyfile(test_on_gcs=blocks(page, "python")[1])
    found = pytester.runpytest_subprocess().parseoutcomes()
    assert found.get("passed", 0) + found.get("skipped", 0) == 2
    assert found["passed"] >= 1
