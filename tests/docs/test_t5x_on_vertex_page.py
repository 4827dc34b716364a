"""What docs/t5x-on-vertex.md shows is run, or parsed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import parser_of
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.settings.command_line import rewrite_gin
from t5x_harness.settings.project import load_project
from t5x_harness.vertex.cloud import GoogleSession
from t5x_harness.vertex.target import FIELDS, VertexTarget


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "t5x-on-vertex.md").read_text()


def test_the_table_is_one(page: str, tmp_path: Path) -> None:
    (block,) = blocks(page, "toml")
    (tmp_path / "pyproject.toml").write_text(block)
    VertexTarget(**load_project(tmp_path).vertex)
    (tmp_path / "pyproject.toml").write_text(re.sub(r"^# ", "", block, flags=re.MULTILINE))
    assert set(load_project(tmp_path).vertex) == set(FIELDS)


def test_the_commands_parse(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "buckets").mkdir()
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(page, "shell")
    commands = [shlex.split(line)[1:] for line in block.splitlines()]
    assert len(commands) == 5
    for words in commands:
        assert words[0] == "submit"
        parser, _ = parser_of("submit")
        parser.parse_args(rewrite_gin(words))


@pytest.mark.journey
def test_the_programs_run(page: str, repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("google.cloud.aiplatform")
    pytest.importorskip("pandas")
    (tmp_path / "finetune.gin").write_text("MIXTURE_OR_TASK_NAME = 'my_task'\n")
    images = {"*/t5x:1": f"{sys.executable} {repository / 'tests' / 'vertex' / 't5x_stand_in.py'}"}
    bucket = (
        "from t5x_harness.vertex import Folder\nFolder('gs://my-bucket', 'my-project').create_bucket('us-central1')\n"
    )
    with GoogleSession(vertex=VertexOptions(images=images)) as session:
        done = subprocess.run(
            [sys.executable, "-c", bucket + "".join(blocks(page, "python"))],
            cwd=tmp_path,
            env={**os.environ, **session.environment()},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "v3-8: 4 chips x at most 4 h = 16 chip-hours" in done.stdout
    assert "gin/finetune.gin" in done.stdout
    assert "workerpool0-0: run_mode train" in done.stdout
    assert "JOB_STATE_SUCCEEDED" in done.stdout
