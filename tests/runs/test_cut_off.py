"""A run that is ended from outside has failed where it was, and says so wherever it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from t5x_harness.runs.background import BackgroundRun
from t5x_harness.runs.cut_off import CutOffRun
from t5x_harness.runs.pipeline import Pipeline
from t5x_harness.runs.pool import RunContext, RunPool
from t5x_harness.runs.shared import SharedRuns
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult

STAGES = (Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
SPEC = RunSpec(("run.gin",))


class Limit(BaseException):
    """As pytest's outcomes are, by which a plugin ends what takes too long."""


class Slow:
    """A pipeline that a limit ends in its plan."""

    spec, stages = SPEC, STAGES

    def __init__(self, at_work: Stage = Stage.PLAN) -> None:
        self.at_work = at_work
        self.closed = False
        self.asked: list[Stage] = []

    def stage(self, stage: Stage) -> StageResult:
        self.asked.append(stage)
        if STAGES.index(stage) >= STAGES.index(self.at_work):
            raise Limit("Timeout (>3.0s) from a plugin.")
        return StageResult(stage, Outcome.PASSED, exercised=1)

    def known(self) -> RunResult:
        done = [StageResult(s, Outcome.PASSED, exercised=1) for s in STAGES[: STAGES.index(self.at_work)]]
        return RunResult(SPEC, (*done, StageResult.interrupted(self.at_work)))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(RunPool, "pipeline_factory", lambda *_: lambda on_progress: made)
    return made


def shared(folder: Path) -> SharedRuns:
    pool = RunPool(timeout=None, in_process=False, at_once=1)
    return SharedRuns(pool, lambda: folder, lambda event: None)


def ask(runs: SharedRuns, stage: Stage) -> StageResult:
    return runs.stage(SPEC, stage, RunContext(), origin="run.gin", pending=list)


def test_the_stage_that_was_at_work_has_failed_and_later_ones_are_left_out(tmp_path: Path, slow: Slow) -> None:
    runs = shared(tmp_path)
    assert [ask(runs, stage).outcome for stage in STAGES[:2]] == [Outcome.PASSED] * 2
    plan = ask(runs, Stage.PLAN)
    assert [(f.code, f.message) for f in plan.errors] == [
        ("RUN06", "plan was ended from outside: Timeout (>3.0s) from a plugin.")
    ]
    train = ask(runs, Stage.TRAIN)
    assert (train.outcome, train.not_checked) == (Outcome.NOT_RUN, ("train: not run, because plan failed",))
    assert runs.failed_before(SPEC, train) == plan
    assert slow.closed
    assert slow.asked == list(STAGES[:3])
    runs.leave(SPEC)
    (shown,) = runs.results.by_run.values()
    assert [stage.outcome for stage in shown.stages] == [Outcome.PASSED, Outcome.PASSED, Outcome.FAILED]


def test_a_whole_run_is_reported_as_failed_and_what_ended_it_goes_on(tmp_path: Path, slow: Slow) -> None:
    runs = shared(tmp_path)
    with pytest.raises(Limit):
        runs.run(SPEC, RunContext(), origin="test_it.py::test_it", may_fail=True)
    (shown,) = runs.results.by_run.values()
    assert shown.stages[-1].outcome is Outcome.FAILED
    assert slow.closed


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_and_ctrl_c_are_for_others(error: type[BaseException], tmp_path: Path, slow: Slow) -> None:
    def stage(stage: Stage) -> Any:
        raise error("mine")

    slow.stage = stage  # type: ignore[method-assign]
    with pytest.raises(error):
        ask(shared(tmp_path), Stage.LINT)
    assert not slow.closed


def test_an_earlier_stage_that_was_at_work_is_the_one_that_failed() -> None:
    """The one that is asked for needs those before it, which may be what takes long."""
    cut = CutOffRun(cast(Pipeline, Slow(Stage.RESOLVE)), Stage.TRAIN, "a limit")
    assert [(s.stage, s.outcome) for s in cut.result().stages] == [
        (Stage.LINT, Outcome.PASSED),
        (Stage.RESOLVE, Outcome.FAILED),
    ]
    assert cut.stage(Stage.TRAIN).not_checked == ("train: not run, because resolve failed",)


def test_stages_that_are_asked_for_in_another_order_are_shown_in_their_own() -> None:
    """As with --failed-first: the stage that failed before comes before those that it needs."""
    run = BackgroundRun(SPEC, (Stage.TRAIN, Stage.LINT, Stage.RESOLVE, Stage.PLAN), cast(Any, None), cast(Any, None))
    assert run.stages == STAGES
