"""The examples of docs/t5x-on-vertex.md run or are parsed."""

import os
import re
import sys
from pathlib import Path

import pytest
from page_blocks import blocks, python

from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.settings.project import load_project
from t5x_harness.vertex.cloud import GoogleSession
from t5x_harness.vertex.target import FIELDS, VertexTarget


def test_the_table_is_one(page: str, tmp_path: Path) -> None:
    (block,) = blocks(page, "toml")
    (tmp_path / "pyproject.toml").write_text(block)
    VertexTarget(**load_project(tmp_path).vertex)
    (tmp_path / "pyproject.toml").write_text(re.sub(r"^# ", "", block, flags=re.MULTILINE))
    assert set(load_project(tmp_path).vertex) == set(FIELDS)


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
        environment = {**os.environ, **session.environment()}
        printed = python(bucket + "".join(blocks(page, "python")), tmp_path, environment)
    assert "v3-8: 4 chips x at most 4 h = 16 chip-hours" in printed
    assert "gin/finetune.gin" in printed
    assert "workerpool0-0: run_mode train" in printed
    assert "JOB_STATE_SUCCEEDED" in printed
