"""A run that is ended from outside has failed where it was, and says so wherever it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_executor import FakeExecutor, linted

from t5x_harness.runs.pool import RunContext, RunPool
from t5x_harness.runs.session import RunRegistry
from t5x_harness.spec import Mode, Outcome, RunSettings, RunSpec, Stage, StageResult

STAGES = (Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
SPEC = RunSpec(("run.gin",), mode=Mode.TRAIN, settings=RunSettings(until=Stage.TRAIN))


class Limit(BaseException):
    """As pytest's outcomes are, by which a plugin ends what takes too long."""


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Whose plan a limit ends."""

    def end(stage: Stage) -> None:
        if stage is Stage.PLAN:
            raise Limit("Timeout (>3.0s) from a plugin.")

    executor = FakeExecutor(end)
    monkeypatch.setattr(RunPool, "run", lambda *_: linted(SPEC, executor))
    return executor


@pytest.fixture
def runs(tmp_path: Path) -> RunRegistry:
    return RunRegistry(RunPool(timeout=None), lambda: tmp_path, lambda event: None)


def ask(runs: RunRegistry, stage: Stage) -> StageResult:
    return runs.stage(SPEC, stage, RunContext(), origin="run.gin", pending=list)


def test_the_stage_that_was_at_work_has_failed_and_later_ones_are_left_out(
    runs: RunRegistry, slow: FakeExecutor
) -> None:
    assert [ask(runs, stage).outcome for stage in STAGES[:2]] == [Outcome.PASSED] * 2
    plan = ask(runs, Stage.PLAN)
    assert [(f.code, f.message) for f in plan.errors] == [
        ("RUN06", "plan was ended from outside: Timeout (>3.0s) from a plugin.")
    ]
    train = ask(runs, Stage.TRAIN)
    assert (train.outcome, train.not_checked) == (Outcome.NOT_RUN, ("train: not run, because plan failed",))
    assert runs.failed_before(SPEC, train) == plan
    assert slow.closed
    assert slow.asked == [Stage.RESOLVE, Stage.PLAN]
    runs.leave(SPEC)
    (shown,) = runs.results.by_run.values()
    assert [stage.outcome for stage in shown.stages[:3]] == [Outcome.PASSED, Outcome.PASSED, Outcome.FAILED]


def test_a_whole_run_is_reported_as_failed_and_what_ended_it_goes_on(runs: RunRegistry, slow: FakeExecutor) -> None:
    with pytest.raises(Limit):
        runs.run(SPEC, RunContext(), origin="test_it.py::test_it", may_fail=True)
    (shown,) = runs.results.by_run.values()
    assert shown.stages[-1].outcome is Outcome.FAILED
    assert slow.closed


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_and_ctrl_c_are_for_others(error: type[BaseException], runs: RunRegistry, slow: FakeExecutor) -> None:
    def fail(_: Stage) -> None:
        raise error("mine")

    slow.hook = fail
    with pytest.raises(error):
        ask(runs, Stage.RESOLVE)
    assert not slow.closed


def test_an_earlier_stage_that_was_at_work_is_the_one_that_failed(slow: FakeExecutor) -> None:
    """The one that is asked for needs those before it, which may be what takes long."""
    run = linted(SPEC, slow)
    with pytest.raises(Limit):
        run.stage(Stage.TRAIN)
    run.cut_off("a limit")
    train = run.stage(Stage.TRAIN)
    assert [(s.stage, s.outcome) for s in run.result().stages] == [
        (Stage.LINT, Outcome.PASSED),
        (Stage.RESOLVE, Outcome.PASSED),
        (Stage.PLAN, Outcome.FAILED),
        (Stage.TRAIN, Outcome.NOT_RUN),
    ]
    assert train.not_checked == ("train: not run, because plan failed",)
