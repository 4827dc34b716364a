"""CONTRIBUTING.md: the additions that it shows are made to a copy of the package, and work."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from page_blocks import blocks

import t5x_harness
import t5x_harness.fixtures
import t5x_harness.plugin
import t5x_harness.sample_tasks

PARTS = (t5x_harness.plugin, t5x_harness.fixtures, t5x_harness.sample_tasks)
"""The packages from other folders of the repository that are installed inside the package."""

_METHOD = """
from pathlib import Path
from google.cloud.aiplatform_v1 import ListModelVersionCheckpointsRequest, ListModelVersionCheckpointsResponse
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.state import open_store
from t5x_harness.google.vertex.wire.api import Api

api = Api(VertexSettings(root=Path("root"), folder=Path("jobs")), open_store("memory:"))
request = ListModelVersionCheckpointsRequest.serialize(
    ListModelVersionCheckpointsRequest(name="projects/p/locations/us-central1/models/1")
)
path = "/google.cloud.aiplatform.v1.ModelService/ListModelVersionCheckpoints"
(answer,) = api.stream(path, request)
print(ListModelVersionCheckpointsResponse.deserialize(answer).checkpoints)
api.close()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Makes a folder with a copy of the package in its installed form."""
    copy = tmp_path / "copy"
    for part in (t5x_harness, *PARTS):
        (found,) = part.__path__
        to = copy / part.__name__.replace(".", "/")
        if not to.exists():
            shutil.copytree(found, to, symlinks=True, ignore=shutil.ignore_patterns("build"))
    return copy


@pytest.fixture
def add(package: Path, repository: Path) -> Callable[[str], None]:
    """Returns a function that adds the files and lines in a section of the page to the copy."""
    page = (repository / "CONTRIBUTING.md").read_text()

    def added(title: str) -> None:
        section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        for source in blocks(section, "python"):
            path = package / source.partition("\n")[0].removeprefix("# ")
            assert not path.exists()
            path.write_text(source)
        for diff in blocks(section, "diff"):
            for name, change in re.findall(r"^--- (\S+)\n((?:[ +-](?!-- ).*\n)+)", diff, re.MULTILINE):
                (package / name).write_text(changed((package / name).read_text(), change))

    return added


def changed(text: str, change: str) -> str:
    """Returns a text with lines added after the known line above them, or before the line below if none is above."""
    lines, at, early = text.splitlines(keepends=True), -1, list[str]()
    for sign, line in ((given[0], given[1:]) for given in change.splitlines(keepends=True)):
        if sign == "+" and at < 0:
            early.append(line)
        elif sign == "+":
            at += 1
            lines.insert(at, line)
        else:
            at = lines.index(line, max(at, 0))
            if sign == "-":
                del lines[at]
                at -= 1
            lines[at:at] = early
            at += len(early)
            early = []
    return "".join(lines)


@pytest.fixture
def python(package: Path, tmp_path: Path) -> Callable[..., str]:
    """Returns a function that runs Python with the copy and returns its output."""

    def ran(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.fspath(package)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    return ran


def test_a_rule_is_one_file(add: Callable[[str], None], python: Callable[..., str], tmp_path: Path) -> None:
    add("Add a rule")
    (tmp_path / "bad.gin").write_text("MODEL_DIR = '/tmp/run'\n")
    (tmp_path / "good.gin").write_text("MODEL_DIR = 'gs://my-bucket/run'\n")
    lint = ("-m", "t5x_harness", "lint", "--run_mode=train", "--select=GCS99", "--t5x-runtime=embedded")
    found = python(*lint, "bad.gin", "good.gin")
    assert "bad.gin:1: error GCS99: MODEL_DIR = '/tmp/run' is gone when the job ends" in found
    assert "fix: name a gs:// folder" in found
    assert "good.gin:" not in found
    assert "GCS99: output folder below /tmp" in python("-m", "t5x_harness", "explain", "GCS99")


def test_an_option_is_one_field(add: Callable[[str], None], python: Callable[..., str]) -> None:
    assert "--wait-seconds" not in python("-m", "t5x_harness", "run", "--help")
    add("Add an option")
    assert "how long to wait (default: 2)" in " ".join(python("-m", "t5x_harness", "run", "--help").split())


def test_a_stage_is_one_file_and_two_lines(add: Callable[[str], None], python: Callable[..., str]) -> None:
    add("Add a stage")
    configs = os.path.join(*t5x_harness.sample_tasks.__path__, "configs")
    run = ("-m", "t5x_harness", "run", "--until=count", "-v", "--t5x-runtime=embedded", "--gcs=off")
    found = python(*run, f"--gin_search_paths={configs}", "--gin_file=finetune_sums.gin")
    assert re.search(r"lint +resolve +plan +count ", found), found
    assert re.search(r"finetune_sums .* ok +ok +ok +ok ", found), found


def test_an_emulated_method_is_one_file_and_one_line(add: Callable[[str], None], python: Callable[..., str]) -> None:
    assert "t5x-harness does not emulate ModelService.ListModelVersionCheckpoints" in python("-c", _METHOD)
    add("Add an emulated method")
    assert python("-c", _METHOD) == "[]\n"
