"""A config with a mistake fails in one stage, with one error: file and line, what is wrong, and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("imported")

Run = Callable[..., pytest.RunResult]

# File, stage, line, what the error says, the fix.
ERRORS = [
    (
        "syntax.gin",
        "lint",
        14,
        "error GIN07: cannot parse `DROPOUT_RATE = 0.0.0`",
        "the value has to be a Python literal",
    ),
    (
        "unknown_configurable.gin",
        "lint",
        18,  # the block's own line
        "error GIN14: t5x.utils has no DatasetConfg; did you mean DatasetConfig?",
        "check its spelling",
    ),
    (
        "no_such_include.gin",
        "lint",
        8,
        "error GIN16: there is no gin file models/tiny_peaces.gin; searched: .,",
        "did you mean models/tiny_pieces.gin?",
    ),
    (
        "unregistered_task.gin",
        "resolve",
        12,
        "error SEQ04: no task or mixture is called 'sample_anser'",
        "use 'sample_answer'",
    ),
    (
        "no_such_split.gin",
        "resolve",
        19,
        "error INF11: task sample_answer has no split 'test' (it has: train, validation)",
        "choose a split that it has",
    ),
    (
        "no_mesh.gin",
        "plan",
        15,
        "error MSH03: T5X has no default submesh for num_partitions=3 on TPU v3 (v3-8)",
        "v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
    ),
]
FILES = [name for name, *_ in ERRORS]


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def assert_each_error_is_told_once(output: str) -> None:
    text = unwrapped(output)
    for name, _, line, message, fix in ERRORS:
        told = rf"{re.escape(f'{name}:{line}: {message}')}[^!]*? fix: {re.escape(fix)}"
        assert len(re.findall(told, text)) == 1, (name, output)


def test_pytest_fails_one_item_of_each_and_skips_what_follows(run_pytest: Run) -> None:
    result = run_pytest(*FILES, "-rfs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=6, passed=4, skipped=14)
    for name, stage, _, message, _ in ERRORS:
        code = message.removeprefix("error ").partition(":")[0]
        result.stdout.fnmatch_lines([f"FAILED {name}::{stage} - {code}: *"])
    result.stdout.fnmatch_lines(["SKIPPED [[]3[]] syntax.gin:*: not run: lint failed"])
    result.stdout.fnmatch_lines(["logs and outputs of the failed runs are kept in *"])
    assert_each_error_is_told_once(result.stdout.str().partition("= short test summary info =")[0])


def test_the_command_ends_with_1(run_command: Run) -> None:
    result = run_command("run", *FILES)
    assert result.ret == 1
    assert_each_error_is_told_once(result.stdout.str())
    result.stdout.fnmatch_lines(["6 failed, 6 errors in *"])


def test_a_folder_asked_for_is_not_left_behind_empty(run_command: Run, folder: Path) -> None:
    result = run_command("run", "unregistered_task.gin", "--model_dir=out/run")
    assert result.ret == 1
    assert not (folder / "out").exists()


def test_a_fragment_on_the_command_line_is_a_collection_error(run_pytest: Run) -> None:
    result = run_pytest("models/tiny_pieces.gin", "good.gin")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting models/tiny_pieces.gin*",
            "models/tiny_pieces.gin is not a run config: it binds none of train, evaluate and infer",
            "    fix: name the config that includes it; or declare a run of several files, *",
        ]
    )


def test_a_fragment_that_shall_run_ends_with_1(run_command: Run) -> None:
    result = run_command("plan", "models/tiny_pieces.gin")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["models/tiny_pieces.gin:1: error GIN31: this is not a run config: it binds none of T5X's functions *"]
    )


def test_a_missing_file_is_wrong_usage(run_pytest: Run, run_command: Run) -> None:
    result = run_pytest("missing_config.gin")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: file or directory not found: missing_config.gin"])
    result = run_command("run", "missing_config.gin")
    assert result.ret == 2
    result.stderr.fnmatch_lines(
        ["t5x-harness: there is no gin file missing_config.gin; searched: ., *; check the name, or *"]
    )


def test_a_binding_that_cannot_be_parsed_is_named(run_pytest: Run) -> None:
    result = run_pytest("good.gin", "--t5x-gin", "DROPOUT_RATE = ", "-k", "lint")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*error GIN07: cannot parse `DROPOUT_RATE = `*"])
