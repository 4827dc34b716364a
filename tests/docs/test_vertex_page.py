"""The examples of docs/vertex.md run or are parsed."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import blocks, python


@pytest.mark.journey
def test_the_tests_pass(page: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")
    tests, conftest, _ = blocks(page, "python")
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_vertex=tests)
    pytester.runpytest_subprocess().assert_outcomes(passed=tests.count("def test_"))


@pytest.mark.journey
def test_the_program_runs(page: str, tmp_path: Path) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")
    assert python(blocks(page, "python")[2], tmp_path).splitlines()[-1] == "losses"
