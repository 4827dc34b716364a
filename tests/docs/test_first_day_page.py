"""The programs that the examples of docs/first-day.md are meant for can read them."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from page_blocks import blocks

from t5x_harness.commands.main import main
from t5x_harness.settings.project import load_project


def test_the_table_is_read(page: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(blocks(page, "toml")[0])
    project = load_project(tmp_path)
    assert (project.layer["slice"], project.gin_files) == ("v3-8", ("configs/runs/*.gin",))
    assert project.python_path == (str(tmp_path / "src"),)


def test_the_hooks_are_those_that_there_are(page: str, repository: Path) -> None:
    (repo,) = yaml.safe_load(blocks(page, "yaml")[0])["repos"]
    known = {hook["id"] for hook in yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for hook in repo["hooks"]} == known


def test_the_conftest_overrides_fixtures(page: str, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(blocks(page, "python")[0])
    pytester.makepyfile(
        "def test_it(t5x_search_paths, t5x_bindings): "
        "assert (t5x_search_paths, t5x_bindings) == (['configs'], ['BATCH_SIZE = 8'])"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_problem_matcher_takes_what_lint_prints(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (task,) = json.loads(blocks(page, "json")[0])["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    (tmp_path / "run.gin").write_text("include 't5x/configs/runs/pretrain.gin'\nUNREAD = 1\n")
    monkeypatch.chdir(tmp_path)
    command = task["command"].replace("${file}", "run.gin")
    assert main([*shlex.split(command)[1:], "--t5x-runtime=embedded"]) == 1
    found = [re.match(pattern["regexp"], line) for line in capsys.readouterr().out.splitlines()]
    named = {match[pattern["code"]]: match for match in found if match}
    warning = named["GIN02"]
    assert (warning[pattern["file"]], warning[pattern["line"]]) == ("run.gin", "2")
    assert warning[pattern["severity"]] == "warning"
    assert warning[pattern["message"]].startswith("nothing reads the macro UNREAD = 1")


def test_a_log_is_explained_as_shown(
    page: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = next(block for block in blocks(page, "shell") if "explain --log job.log" in block)
    recorded = (repository / "tests/reference/logs/host_1_killed.log").read_text()
    (tmp_path / "job.log").write_text(
        f"[task 0] Training: step 20\n[task 1] Training: step 20\n{recorded}", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == next(block for block in blocks(page, "text") if "job.log" in block)
