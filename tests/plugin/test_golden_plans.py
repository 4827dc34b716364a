"""``--t5x-plan-golden``: each collected config is held against the plan that was kept of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

PLAN = "train.gin::plan"


@pytest.mark.journey
def test_the_first_run_writes_it_the_next_compares_and_an_update_accepts(folder: Path, run: Run) -> None:
    first = run(PLAN, "--t5x-plan-golden=golden")
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(["*whether the plan is as before: golden/train.plan was not there*"])
    kept = (folder / "golden/train.plan").read_text()
    assert str(folder) not in kept

    changed = run(PLAN, "--t5x-plan-golden=golden", "--t5x-gin=TRAIN_STEPS = 14_000")
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*error PLN01: the plan differs from golden/train.plan in 1 binding and*"])
    changed.stdout.fnmatch_lines(["*TRAIN_STEPS: * -> 14000 (--gin bindings:1)*"])
    assert (folder / "golden/train.plan").read_text() == kept

    run(PLAN, "--t5x-plan-golden=golden", "--t5x-plan-golden-update", "--t5x-gin=TRAIN_STEPS = 14_000").assert_outcomes(
        passed=1
    )
    assert "TRAIN_STEPS = 14000\n" in (folder / "golden/train.plan").read_text()


def test_the_project_may_say_where_they_are(folder: Path, run: Run) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\nplan_golden = "kept"\n')
    run(PLAN).assert_outcomes(passed=1)
    assert (folder / "kept/train.plan").is_file()


def test_two_configs_cannot_share_one(run: Run) -> None:
    result = run("train.gin", "infer.gin", "--t5x-plan-golden=one.plan", "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*--t5x-plan-golden: */one.plan would be the golden plan of */infer.gin and of */train.gin; for several "
            "runs name a folder, and give each run its own name*"
        ]
    )
