"""What docs/google.md shows is run, or parsed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import parser_of
from t5x_harness.google.environment import google_environment
from t5x_harness.google.server.endpoints import Endpoints


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "google.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_program_runs(page: str, tmp_path: Path) -> None:
    (block,) = blocks(page, "python")
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"access_token": "fake"' in done.stdout


def test_the_commands_parse(page: str) -> None:
    (block,) = blocks(page, "shell")
    commands = [shlex.split(line)[1:] for line in block.splitlines()]
    assert [words[0] for words in commands] == ["exec", "exec", "exec", "exec", "serve"]
    for words in commands:
        parser, _ = parser_of(words[0])
        parser.parse_args(words)


def test_the_variables_it_names_are_set(page: str, tmp_path: Path) -> None:
    endpoints = Endpoints(http=1, tls=2, proxy=3, grpc=4, folder=tmp_path, root=tmp_path, pid=5)
    named = set(re.findall(r"`([A-Z][A-Z_]{5,})`", page)) - {"UNIMPLEMENTED", "SERVICE_DISABLED", "DENIED"}
    assert len(named) > 8
    assert named <= set(google_environment(endpoints, {}))
