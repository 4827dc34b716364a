"""``t5x-harness lint``: diffs and fixes, fragments, and the hooks for pre-commit."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.main import main

GOOD = """\
from __gin__ import dynamic_registration
from t5x import utils
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
TRAIN_STEPS = 100
DROPOUT_RATE = 0.0
"""
BAD = GOOD + "BATCHSIZE = 16  # mine\nutils.SaveCheckpointConfig.perod = 50\n"
MENDED = GOOD + "BATCH_SIZE = 16  # mine\nutils.SaveCheckpointConfig.period = 50\n"
FRAGMENT = """\
from __gin__ import dynamic_registration
from t5x import utils
train/utils.DatasetConfig.seed = %MY_SEED
train/utils.DatasetConfig.bach_size = 8
"""
DIFF = """\
--- run.gin
+++ run.gin
@@ -6,5 +6,5 @@
 TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
 TRAIN_STEPS = 100
 DROPOUT_RATE = 0.0
-BATCHSIZE = 16  # mine
-utils.SaveCheckpointConfig.perod = 50
+BATCH_SIZE = 16  # mine
+utils.SaveCheckpointConfig.period = 50
"""
EMBEDDED = "--t5x-runtime=embedded"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run config that has two mistakes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "run.gin").write_text(BAD)
    return tmp_path


def test_diff_shows_what_fix_would_do_and_writes_nothing(folder: Path, harness: Any) -> None:
    assert harness(1, "lint", "run.gin", EMBEDDED, "--diff") == (DIFF, "2 findings in 1 file would be fixed\n")
    assert harness(1, "lint", "run.gin", EMBEDDED, "--fix", "--diff").out == DIFF
    assert (folder / "run.gin").read_text() == BAD


def test_fix_shows_the_diff_writes_it_and_reports_what_is_left(folder: Path, harness: Any) -> None:
    (folder / "run.gin").write_text(BAD.replace("'my_task'", "= 1"))
    out, err = harness(1, "lint", "run.gin", EMBEDDED, "--fix")
    assert out.startswith("--- run.gin\n+++ run.gin\n@@ ")
    assert "1 finding in 1 file fixed\n" in out
    assert "run.gin:5: error GIN07: cannot parse `MIXTURE_OR_TASK_NAME = = 1`" in out
    assert "GIN13" not in out
    assert err == ""


def test_after_fixing_there_is_nothing_to_fix(folder: Path, harness: Any) -> None:
    assert harness(0, "lint", "run.gin", EMBEDDED, "--fix").out.startswith(f"{DIFF}2 findings in 1 file fixed\n\nrun ")
    assert (folder / "run.gin").read_text() == MENDED
    assert harness(0, "lint", "run.gin", EMBEDDED, "--diff") == ("", "nothing to fix\n")


def test_a_report_for_programs_stays_alone_on_standard_output(harness: Any) -> None:
    findings = json.loads(harness(1, "lint", "run.gin", EMBEDDED, "--json").out)["findings"]
    edits = next(f["edits"] for f in findings if f["code"] == "GIN13")
    assert edits == [{"file": "run.gin", "first": 10, "last": 10, "text": "utils.SaveCheckpointConfig.period = 50\n"}]
    out, err = harness(0, "lint", "run.gin", EMBEDDED, "--fix", "--json")
    assert json.loads(out)["passed"]
    assert err == f"{DIFF}2 findings in 1 file fixed\n\n"


def test_a_silenced_finding_is_not_fixed(folder: Path) -> None:
    (folder / "run.gin").write_text(BAD.replace("# mine", "# t5x-harness: ignore[GIN01]"))
    assert main(["lint", "run.gin", EMBEDDED, "--fix"]) == 0
    assert "BATCHSIZE = 16  # t5x" in (folder / "run.gin").read_text()
    assert "period = 50" in (folder / "run.gin").read_text()


def test_only_named_files_are_changed(folder: Path, harness: Any) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "part.gin").write_text("BATCHSIZE = 16\n")
    (folder / "conf" / "run.gin").write_text(GOOD + "include 'conf/part.gin'\n")
    assert harness(0, "lint", "conf/run.gin", EMBEDDED, "--fix").err == "conf/part.gin could be fixed, too: name it\n"
    assert main(["lint", "conf", EMBEDDED, "--fix"]) == 0
    assert (folder / "conf" / "part.gin").read_text() == "BATCH_SIZE = 16\n"
    assert (folder / "run.gin").read_text() == BAD


def test_a_run_in_a_folder_that_leaves_something_open_is_not_left_out_in_silence(folder: Path, harness: Any) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "base.gin").write_text(GOOD.replace("TRAIN_STEPS = 100\n", ""))
    (folder / "conf" / "forgotten.gin").write_text(GOOD.replace("TRAIN_STEPS = 100\n", ""))
    (folder / "conf" / "run.gin").write_text("include 'conf/base.gin'\nTRAIN_STEPS = 100\n")
    assert harness(0, "lint", "conf", EMBEDDED).err == (
        "t5x-harness: left out: conf/forgotten.gin is not a run config: it leaves TRAIN_STEPS to another file or the "
        "command line\n"
    )


def test_diff_with_a_report_is_refused(harness: Any) -> None:
    said = harness(2, "lint", "run.gin", EMBEDDED, "--diff", "--json").err
    assert "--diff prints a diff and no report: leave out --format, --json and --output, or --diff" in said


def test_a_file_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, harness: Any) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("t5x_harness.lint.fixes.write_atomically", refuse)
    said = harness(2, "lint", "run.gin", EMBEDDED, "--fix").err
    assert said == "t5x-harness: cannot write run.gin: Permission denied\n"


def test_a_fragment_is_judged_for_what_it_says_itself(folder: Path, harness: Any) -> None:
    (folder / "part.gin").write_text(FRAGMENT)
    document = json.loads(harness(1, "lint", "part.gin", EMBEDDED, "--json").out)
    assert [f["code"] for f in document["findings"]] == ["GIN13"]
    assert any(
        "GIN18" in n["text"] and "the file is not a run config: it binds none of train" in n["text"]
        for n in document["not_checked"]
    )
    (folder / "part.gin").write_text("# nothing yet\n")
    assert main(["lint", "part.gin", EMBEDDED]) == 0


@pytest.mark.parametrize("run", [["--gin.TRAIN_STEPS=1"], ["--run_mode=train"]])
def test_who_asks_for_a_run_is_told_that_a_fragment_is_none(folder: Path, run: list[str], harness: Any) -> None:
    (folder / "part.gin").write_text("BATCH_SIZE = 8\n")
    assert "error GIN31: this is not a run config" in harness(1, "lint", "part.gin", EMBEDDED, *run).out
    assert main(["lint", "--gin_file=part.gin", EMBEDDED]) == 1
    assert "--fragments is for FILEs alone" in harness(2, "lint", "part.gin", EMBEDDED, "--fragments", *run).err


def test_with_fragments_what_is_left_open_is_left_to_other_files(folder: Path, harness: Any) -> None:
    (folder / "run.gin").write_text("include 't5x/configs/runs/pretrain.gin'\nTRAIN_STEPS = %gin.REQUIRED\n")
    assert "GIN03" in harness(1, "lint", "run.gin", EMBEDDED).out
    out = " ".join(harness(0, "lint", "--fragments", "run.gin", EMBEDDED).out.split())
    assert "leaves MIXTURE_OR_TASK_NAME, TASK_FEATURE_LENGTHS, TRAIN_STEPS to another file or the command line" in out


def _hooks(repository: Path) -> dict[str, dict[str, str]]:
    """Returns the hooks by their ids; it checks that the file is a list of flat maps."""
    hooks: dict[str, dict[str, str]] = {}
    for line in (repository / ".pre-commit-hooks.yaml").read_text().splitlines():
        if line and not line.startswith("#"):
            assert line.startswith(("- ", "  ")), line
            key, _, value = line[2:].partition(": ")
            if line.startswith("- "):
                hooks[value] = {}
            else:
                hooks[list(hooks)[-1]][key] = value
    return hooks


def test_the_hooks_say_what_pre_commit_needs(repository: Path) -> None:
    hooks = _hooks(repository)
    assert list(hooks) == ["t5x-gin-fix", "t5x-gin-lint"]
    for hook in hooks.values():
        assert {"name", "description", "entry"} < set(hook)
        assert hook["language"] == "python"
        assert hook["files"] == r"\.gin$"
        assert hook["types"] == "[text]"
        assert hook["require_serial"] == "true"


def _run_hook(repository: Path, name: str, *files: str) -> subprocess.CompletedProcess[str]:
    """Runs a hook as pre-commit does: its entry, followed by the changed files."""
    program, *arguments = shlex.split(_hooks(repository)[name]["entry"])
    assert program == "t5x-harness"
    command = [sys.executable, "-m", "t5x_harness", *arguments, *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_hooks_take_all_changed_files_at_once(folder: Path, repository: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "part.gin").write_text(FRAGMENT)
    (folder / "good.gin").write_text(GOOD)
    (folder / "template.gin").write_text("include 't5x/configs/runs/finetune.gin'\n")
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    files = ["run.gin", "part.gin", "good.gin", "template.gin"]
    linted = _run_hook(repository, "t5x-gin-lint", *files)
    assert linted.returncode == 1
    assert "run.gin:10: error GIN13" in linted.stdout
    assert "part.gin:4: error GIN13" in linted.stdout
    assert linted.stdout.rstrip().splitlines()[-1].startswith("2 failed, 2 passed, 2 errors")
    fixed = _run_hook(repository, "t5x-gin-fix", *files)
    assert fixed.returncode == 0, fixed.stdout
    changed = subprocess.run(["git", "diff", "--name-only"], cwd=folder, capture_output=True, text=True, check=True)
    assert changed.stdout.split() == ["part.gin", "run.gin"]
    assert _run_hook(repository, "t5x-gin-lint", *files).returncode == 0


def test_where_t5x_cannot_run_packages_are_left_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch, harness: Any
) -> None:
    (folder / "run.gin").write_text(GOOD + "import my_tasks\nimport t5x.utlis\n")
    document = json.loads(harness(1, "lint", "run.gin", EMBEDDED, "--json").out)
    assert [f["code"] for f in document["findings"]] == ["GIN15", "GIN15"]
    monkeypatch.setattr("t5x_harness.gin.reading._STACK", "no_such_stack")
    document = json.loads(harness(1, "lint", "run.gin", EMBEDDED, "--json").out)
    assert [f["message"] for f in document["findings"]] == ["there is no module t5x.utlis"]
    doubt = "whether my_tasks can be imported where T5X runs: not in this Python, which has no no_such_stack"
    assert doubt in [n["text"] for n in document["not_checked"]]


def test_an_empty_file_name_is_refused(harness: Any) -> None:
    assert "a FILE is empty: name a gin file or a folder" in harness(2, "lint", "").err


def test_a_batch_is_held_against_a_slice_that_is_named(folder: Path, harness: Any) -> None:
    (folder / "run.gin").write_text(GOOD + "BATCH_SIZE = 12\n")
    command = ("lint", EMBEDDED, "run.gin")
    harness(0, *command)
    said = "run.gin:9: error MSH02: the batch size of train and train_eval is 12"
    assert said in harness(1, *command, "--slice=v3-8").out
    harness(2, *command, "--slice=v9-8")
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\nslice = 'v3-8'\n")
    harness(1, *command)
