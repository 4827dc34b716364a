"""The examples of docs/vertex-training-package.md run: here, with the SDK, and with gcloud if it is installed."""

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from page_blocks import bash, blocks, python

from t5x_harness.vertex.cloud import GoogleSession

PACKAGE = "sample_tasks/trainer_package"


@pytest.fixture(scope="module")
def project(repository: Path, page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with the page's files, and runs its blocks that need no Vertex AI."""
    folder = Path(shutil.copytree(repository / PACKAGE, tmp_path_factory.mktemp("page") / "project"))
    block, *_ = blocks(page, "shell")
    done = bash(block, folder, {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert json.loads(done.splitlines()[-1])["steps"] == 50
    return folder


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    pytest.importorskip("google.cloud.aiplatform_v1")
    with GoogleSession() as session:
        yield {**os.environ, **session.environment()}


def test_the_tree_is_the_folder_s(page: str, repository: Path) -> None:
    (tree,) = re.findall(rf"^```\n{PACKAGE}/\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    named = {line.split()[0] for line in tree.splitlines()}
    package = repository / PACKAGE
    there = {str(path.relative_to(package)) for path in package.rglob("*.*")}
    assert named == {name for name in there if "__" not in name and ".egg" not in name} - {"README.md"}


@pytest.mark.journey
def test_the_program_of_the_sdk_runs(page: str, project: Path, environment: Mapping[str, str]) -> None:
    pytest.importorskip("google.cloud.aiplatform")
    (block,) = blocks(page, "python")
    assert json.loads(python(block, project, environment).splitlines()[-1])["steps"] == 50


@pytest.mark.journey
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_the_commands_of_gcloud_run(page: str, project: Path, environment: Mapping[str, str]) -> None:
    _, *commands = blocks(page, "shell")
    tuning = [command for command in commands if "hp-tuning-jobs" in command]
    said = bash("\n".join(command for command in commands if command not in tuning), project, environment)
    assert "INFO" in said, "stream-logs"
    assert re.search(r"workerpool1-1\treplica 2 of 3: loss 0\.", said)
    assert re.search(r"service\tJob completed successfully\.", said)
    assert re.search(r"^by-config\tJOB_STATE_SUCCEEDED$", said, re.MULTILINE)
    assert json.loads(re.findall(r"^\{.*\}", said, re.MULTILINE)[-1])["steps"] == 20
    listed = dict(re.findall(r"^(\S+) +(JOB_STATE_\w+)$", said, re.MULTILINE))
    assert set(listed) == {"by-flags", "by-config", "too-long"} | ({"by-sdk"} & set(listed))
    assert listed["by-flags"] == "JOB_STATE_SUCCEEDED"
    assert listed["too-long"] in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")
    if importlib.util.find_spec("hypertune"):
        (found,) = tuning
        state, losses = bash(found, project, environment).splitlines()
        assert state == "JOB_STATE_SUCCEEDED"
        assert len(re.findall(r"0\.\d+", losses)) == 3
