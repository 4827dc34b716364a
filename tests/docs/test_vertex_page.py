"""What docs/vertex.md shows is run, or parsed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import parser_of


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "vertex.md").read_text()


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
    program = blocks(page, "python")[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "losses"


def test_the_commands_parse(page: str) -> None:
    (block,) = blocks(page, "shell")
    commands = [shlex.split(line)[1:] for line in block.splitlines()]
    assert [words[0] for words in commands] == ["exec", "exec", "serve", "exec", "serve"]
    for words in commands:
        parser, _ = parser_of(words[0])
        parser.parse_args(words)
