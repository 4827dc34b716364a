"""The examples of docs/pretraining.md run: the guide's example, a task with its cache, and a stopped training."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from page_blocks import bash, blocks, options_of

from t5x_harness.commands.main import main
from t5x_harness.lint.t5_package import TASKS
from t5x_harness.variables import WORKER_SOCKET_VARIABLE
from t5x_harness.workers.zygote import Zygote

Shell = Callable[[str], str]


@pytest.fixture(scope="module")
def folder(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with the page's files."""
    made = tmp_path_factory.mktemp("page")
    for name, text in zip(("c4.gin", "my_run.gin"), blocks(page, "gin"), strict=True):
        (made / name).write_text(text)
    (made / "my_tasks.py").write_text(blocks(page, "python")[0])
    return made


@pytest.fixture
def shell(folder: Path, zygote: Zygote, socket_path: Path) -> Shell:
    """Returns a function that runs a line in the page's folder, with T5X already imported, and returns its output."""
    environment = {**os.environ, WORKER_SOCKET_VARIABLE: str(socket_path), "COLUMNS": "120"}

    def run(line: str) -> str:
        return bash(line, folder, environment)

    return run


def test_the_options_are_those_of_the_commands(page: str) -> None:
    (row,) = re.findall(r"^\| `--tfds_data_dir` \| the same, for (.*?) and", page, re.MULTILINE)
    commands = set(re.findall(r"`(\w+)`", row))
    takers = [name for name in ("lint", "plan", "run", "submit", "cache") if "--tfds_data_dir" in options_of(name)]
    assert commands == {*takers}
    assert set(re.findall(r"`(--(?:no-check|standins|output_cache_dir))", page)) <= options_of("cache")


@pytest.mark.stack
def test_the_warning_is_that_of_lint(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["lint", "c4.gin"]) == 0
    (shown,) = blocks(page, "text")
    assert shown in capsys.readouterr().out
    assert all(task in shown for task in TASKS)


@pytest.mark.journey
def test_the_guides_example_passes_every_stage(page: str, shell: Shell) -> None:
    printed = shell(blocks(page, "shell")[0])
    assert re.search(r"^c4 +train +v4-8 data 4 x model 1 +(ok +){4}ok", printed, re.MULTILINE), printed
    for metric in ("train/loss", "training_eval/c4_v220_span_corruption/loss"):
        assert metric in printed
    assert "1 passed, 1 warning" in printed


@pytest.mark.journey
def test_a_task_is_cached_and_its_training_goes_on_where_it_was_stopped(page: str, folder: Path, shell: Shell) -> None:
    *made, cache, run = blocks(page, "shell")[1].splitlines()
    for line in made:
        shell(line)
    assert shell(cache) == blocks(page, "console")[0]
    assert "1 passed in" in shell(run)
    for line in blocks(page, "shell")[2].splitlines():
        assert shlex.split(line)[:2] == ["t5x-harness", "exec"]
        shell(line)
    from t5x_harness.vertex.metrics import scalars_of

    losses = []
    for model in ("whole", "halves"):
        files = sorted((folder / model / "train").glob("events.out.tfevents.*"))
        scalars = [found for path in files for found in scalars_of(path.read_bytes())]
        losses.append({step: value for name, step, value in scalars if name == "loss"})
    assert sorted(losses[0]) == [1, 2, 3, 4, 5, 6]
    assert losses[0] == losses[1]
