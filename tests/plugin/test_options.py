"""Options and ini values are checked where they are read, with the form they take."""

from __future__ import annotations

import pytest


def test_help_teaches_every_option(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_subprocess("--help").stdout.str()
    for option in ("--t5x-runtime", "--t5x-slice", "--t5x-gin", "--t5x-full-size", "--t5x-in-process", "--t5x-timeout"):
        assert option in text
    assert "--t5x-ahead=N" in text
    assert "--t5x-github-annotations={auto,always,never}" in text
    for ini in ("t5x_gin_files", "t5x_bindings", "t5x_search_paths", "t5x_slice", "t5x_github_annotations"):
        assert ini in text


@pytest.mark.parametrize("value", ["0", "-3", "soon"])
def test_a_time_limit_is_a_positive_number(pytester: pytest.Pytester, value: str) -> None:
    result = pytester.runpytest_subprocess(f"--t5x-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--t5x-timeout must be a positive number of seconds, not '{value}'*"])


@pytest.mark.parametrize("arguments", [("--t5x-ahead=all",), ("-o", "t5x_ahead=all")])
def test_the_runs_ahead_are_a_number(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--t5x-ahead and t5x_ahead must be a number of runs from 0 up, not 'all'*"])
