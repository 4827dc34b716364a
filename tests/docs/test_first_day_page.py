"""What docs/first-day.md shows is read by what it is for."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from t5x_harness.commands.main import main, parser_of
from t5x_harness.settings.command_line import rewrite_gin
from t5x_harness.settings.project import load_project


@pytest.fixture(scope="module")
def block(repository: Path) -> Callable[[str, int], str]:
    """The blocks of the page, by language and number."""
    text = (repository / "docs" / "first-day.md").read_text()
    return lambda language, number: re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[number]


def harness_commands(lines: list[str]) -> list[list[str]]:
    words = [shlex.split(line, comments=True) for line in lines]
    return [[word for word in line[1:] if word != "&"] for line in words if line and line[0] == "t5x-harness"]


def test_the_commands_parse(block: Callable[[str, int], str], pytester: pytest.Pytester) -> None:
    steps = yaml.safe_load(block("yaml", 1))["jobs"]["configs"]["steps"]
    lines = [*block("shell", 0).splitlines(), *(step["run"] for step in steps if "run" in step)]
    commands = harness_commands(lines)
    assert [words[0] for words in commands] == ["doctor", "lint", "plan", "warm", "run", "lint"]
    for words in commands:
        parser, module = parser_of(words[0])
        parser.parse_args(words if module else rewrite_gin(words))
    calls = [shlex.split(line, comments=True) for line in (*block("shell", 1).splitlines(), *lines)]
    options = {word.partition("=")[0] for words in calls if words[:1] == ["pytest"] for word in words if "--" in word}
    assert options == {"--t5x-until", "--junitxml"}
    help_text = pytester.runpytest_subprocess("--help").stdout.str()
    assert all(option in help_text.replace("--junit-xml", "--junitxml") for option in options)


def test_the_table_is_read(block: Callable[[str, int], str], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(block("toml", 0))
    project = load_project(tmp_path)
    assert (project.layer["slice"], project.gin_files) == ("v3-8", ("configs/runs/*.gin",))
    assert project.python_path == (str(tmp_path / "src"),)


def test_the_hooks_are_those_that_there_are(block: Callable[[str, int], str], repository: Path) -> None:
    (repo,) = yaml.safe_load(block("yaml", 0))["repos"]
    known = {hook["id"] for hook in yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for hook in repo["hooks"]} == known


def test_the_conftest_overrides_fixtures(block: Callable[[str, int], str], pytester: pytest.Pytester) -> None:
    pytester.makeconftest(block("python", 0))
    pytester.makepyfile(
        "def test_it(t5x_search_paths, t5x_bindings): "
        "assert (t5x_search_paths, t5x_bindings) == (['configs'], ['BATCH_SIZE = 8'])"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_problem_matcher_takes_what_lint_prints(
    block: Callable[[str, int], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (task,) = json.loads(block("json", 0))["tasks"]
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
