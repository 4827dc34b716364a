"""Several runs work at once; their results are taken in order, and equal those of each run alone.

A run that is ended from outside has failed at its current stage, and every report shows that.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_executor import FakeExecutor, linted

from t5x_harness.runs.pool import RunContext, RunPool, runs_at_once
from t5x_harness.runs.run import Run
from t5x_harness.runs.session import RunRegistry
from t5x_harness.spec import Mode, Outcome, RunSettings, RunSpec, Stage, StageResult

STAGES = (Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
LONG = 30.0  # seconds that no test takes unless it fails


class Waiting(FakeExecutor):
    """An executor whose stages wait until they may continue."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.may_go_on = {stage: threading.Event() for stage in STAGES}
        self.reached = {stage: threading.Event() for stage in STAGES}
        self.ended = threading.Event()

    def wait(self, stage: Stage) -> None:
        self.reached[stage].set()
        assert self.may_go_on[stage].wait(LONG)

    def close(self) -> None:
        """Lets everything that waits continue, as it does if the run's process is killed."""
        self.ended.set()
        self.go_on()

    def go_on(self) -> None:
        for event in self.may_go_on.values():
            event.set()


class Begun:
    """Runs that were begun, and the executors behind them."""

    def __init__(self, pool: RunPool) -> None:
        self.pool = pool
        self.executors: dict[str, Waiting] = {}

    def __call__(self, name: str, on_progress: Callable[[Mapping[str, Any]], None] | None = None) -> Run:
        executor = self.executors[name] = Waiting()
        run = linted(RunSpec((f"{name}.gin",), mode=Mode.TRAIN), executor, on_progress=on_progress)
        self.pool.begin(run, STAGES)
        return run


@pytest.fixture
def begin() -> Iterator[Begun]:
    pool = RunPool(timeout=None, parallel=2)
    yield Begun(pool)
    pool.close(patient=True)


def test_as_many_runs_work_at_once_as_may_and_the_next_one_follows(begin: Begun) -> None:
    runs = {name: begin(name) for name in ("a", "b", "c")}
    executors = begin.executors
    for name in ("a", "b"):
        assert executors[name].reached[Stage.RESOLVE].wait(LONG)
    assert not executors["c"].asked
    executors["b"].go_on()
    assert runs["b"].stage(Stage.TRAIN).outcome is Outcome.PASSED
    assert executors["c"].reached[Stage.RESOLVE].wait(LONG)
    assert executors["b"].ended.is_set()
    assert not executors["a"].ended.is_set()


def test_a_result_holds_the_stages_up_to_the_last_that_was_asked_for(begin: Begun) -> None:
    run = begin("a")
    assert not run.is_asked
    begin.executors["a"].go_on()
    assert run.stage(Stage.RESOLVE).stage is Stage.RESOLVE
    assert run.is_asked
    result = run.result()
    assert [stage.stage for stage in result.stages] == [Stage.LINT, Stage.RESOLVE]
    assert result.steps == 4
    assert begin.executors["a"].ended.is_set()


def test_progress_is_told_of_the_stage_that_is_waited_for_and_of_no_other(begin: Begun) -> None:
    told: list[Mapping[str, Any]] = []
    run = begin("a", told.append)
    executor = begin.executors["a"]
    run.tell({"stage": "resolve", "step": 1})
    assert told == []
    waiting = threading.Thread(target=run.stage, args=(Stage.RESOLVE,))
    waiting.start()
    until(lambda: told == [{"stage": "resolve", "step": 1}])  # the earlier event
    run.tell({"stage": "resolve", "step": 2})
    executor.may_go_on[Stage.RESOLVE].set()
    waiting.join(LONG)
    assert executor.reached[Stage.PLAN].wait(LONG)
    run.tell({"stage": "plan"})
    assert told == [{"stage": "resolve", "step": 1}, {"stage": "resolve", "step": 2}]


def test_a_closed_run_is_killed_and_begins_no_further_stage(begin: Begun) -> None:
    run, waits = begin("a"), [begin(name) for name in ("b", "c")]
    executors = begin.executors
    assert executors["a"].reached[Stage.RESOLVE].wait(LONG)
    run.close()
    assert executors["a"].ended.wait(LONG)
    waits[1].close()  # it has not begun
    begin.pool.close(patient=True)
    assert executors["a"].asked == [Stage.RESOLVE]
    assert executors["c"].asked == []


def test_what_stops_a_run_is_raised_where_it_is_asked_for(begin: Begun) -> None:
    def fail(_: Stage) -> None:
        raise ValueError("no such folder")

    run = linted(RunSpec(("a.gin",), mode=Mode.TRAIN), FakeExecutor(fail))
    begin.pool.begin(run, STAGES)
    with pytest.raises(ValueError, match="no such folder"):
        run.stage(Stage.RESOLVE)
    with pytest.raises(ValueError, match="no such folder"):
        run.result()


def test_stages_that_are_asked_for_in_another_order_are_run_in_their_own() -> None:
    """With --failed-first, the stage that failed before comes before the stages that it needs."""
    run = Run(RunSpec((), mode=Mode.TRAIN), None)
    run.begin((Stage.TRAIN, Stage.LINT, Stage.PLAN, Stage.RESOLVE))
    assert run.stages == (Stage.LINT, *STAGES)


@pytest.mark.parametrize(
    ("cores", "ahead", "expected"), [(1, None, 2), (2, None, 3), (64, None, 4), (1, 5, 6), (8, 0, 1)]
)
def test_how_many_runs_work_at_once(
    cores: int, ahead: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert runs_at_once(ahead) == expected


def until(holds: Callable[[], bool]) -> None:
    """Waits until another thread makes a condition hold."""
    pause = threading.Event()
    for _ in range(int(LONG / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come about")


SPEC = RunSpec(("run.gin",), mode=Mode.TRAIN, settings=RunSettings(until=Stage.TRAIN))


class Limit(BaseException):
    """An exception like pytest's outcomes, with which a plugin ends anything that takes too long."""


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Returns an executor whose plan is ended by a limit."""

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
    assert [ask(runs, stage).outcome for stage in (Stage.LINT, Stage.RESOLVE)] == [Outcome.PASSED] * 2
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
    """The requested stage needs the earlier ones, which may be the slow ones."""
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
