"""Several runs work at once; their results are taken in order, and are what a pipeline alone would have answered."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from t5x_harness.runs.background import BackgroundRun, BackgroundRuns, OnProgress, runs_at_once
from t5x_harness.runs.pipeline import Pipeline
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult

STAGES = (Stage.LINT, Stage.RESOLVE, Stage.TRAIN)
LONG = 30.0  # seconds that no test takes unless it fails


class Fake:
    """Stands for a pipeline; a stage waits until it may go on."""

    def __init__(self, on_progress: OnProgress) -> None:
        self.on_progress = on_progress
        self.may_go_on = {stage: threading.Event() for stage in STAGES}
        self.reached = {stage: threading.Event() for stage in STAGES}
        self.done: list[Stage] = []
        self.ended = threading.Event()

    def stage(self, stage: Stage) -> StageResult:
        self.reached[stage].set()
        assert self.may_go_on[stage].wait(LONG)
        self.done.append(stage)
        return StageResult(stage, Outcome.PASSED, exercised=1)

    def result(self) -> RunResult:
        return RunResult(RunSpec(("a.gin",)), tuple(StageResult(stage, Outcome.PASSED) for stage in self.done), steps=4)

    def close(self) -> None:
        """As the run's process is killed: whatever waits for it goes on."""
        self.ended.set()
        for event in self.may_go_on.values():
            event.set()

    def go_on(self) -> None:
        for event in self.may_go_on.values():
            event.set()


class Begun:
    """Runs that were begun, and the pipelines that stand behind those that work."""

    def __init__(self, background: BackgroundRuns) -> None:
        self.background = background
        self.fakes: dict[str, Fake] = {}
        self.made = threading.Condition()

    def __call__(self, name: str, on_progress: OnProgress = lambda event: None) -> BackgroundRun:
        @contextlib.contextmanager
        def make(told: OnProgress) -> Iterator[Pipeline]:
            fake = Fake(told)
            with self.made:
                self.fakes[name] = fake
                self.made.notify_all()
            try:
                yield cast(Pipeline, fake)
            finally:
                fake.close()

        return self.background.begin(RunSpec((f"{name}.gin",)), STAGES, make, lambda spec: on_progress)

    def fake(self, name: str) -> Fake:
        with self.made:
            assert self.made.wait_for(lambda: name in self.fakes, LONG)
        return self.fakes[name]


@pytest.fixture
def begin() -> Iterator[Begun]:
    begun = Begun(BackgroundRuns(2))
    yield begun
    begun.background.cancel()
    begun.background.join()


def test_as_many_runs_work_at_once_as_may_and_the_next_one_follows(begin: Begun) -> None:
    runs = {name: begin(name) for name in ("a", "b", "c")}
    for name in ("a", "b"):
        assert begin.fake(name).reached[Stage.LINT].wait(LONG)
    assert "c" not in begin.fakes
    begin.fake("b").go_on()
    assert runs["b"].stage(Stage.TRAIN).outcome is Outcome.PASSED
    assert begin.fake("c").reached[Stage.LINT].wait(LONG)
    assert begin.fake("b").ended.is_set()
    assert not begin.fake("a").ended.is_set()


def test_a_result_holds_the_stages_up_to_the_last_that_was_asked_for(begin: Begun) -> None:
    run = begin("a")
    assert not run.is_asked
    begin.fake("a").go_on()
    assert run.stage(Stage.LINT).stage is Stage.LINT
    assert run.stage(Stage.RESOLVE).stage is Stage.RESOLVE
    assert run.is_asked
    result = run.result()
    assert [stage.stage for stage in result.stages] == [Stage.LINT, Stage.RESOLVE]
    assert result.steps == 4
    assert begin.fake("a").ended.is_set()


def test_progress_is_told_of_the_stage_that_is_waited_for_and_of_no_other(begin: Begun) -> None:
    told: list[Mapping[str, Any]] = []
    run = begin("a", told.append)
    fake = begin.fake("a")
    fake.on_progress({"stage": "lint", "step": 1})
    assert told == []
    waiting = threading.Thread(target=run.stage, args=(Stage.LINT,))
    waiting.start()
    until(lambda: told == [{"stage": "lint", "step": 1}])  # what had come before
    fake.on_progress({"stage": "lint", "step": 2})
    fake.may_go_on[Stage.LINT].set()
    waiting.join(LONG)
    assert fake.reached[Stage.RESOLVE].wait(LONG)
    fake.on_progress({"stage": "resolve"})
    assert told == [{"stage": "lint", "step": 1}, {"stage": "lint", "step": 2}]


def test_a_closed_run_is_killed_and_begins_no_further_stage(begin: Begun) -> None:
    run, waits = begin("a"), [begin(name) for name in ("b", "c")]
    assert begin.fake("a").reached[Stage.LINT].wait(LONG)
    run.close()
    assert begin.fake("a").ended.wait(LONG)
    waits[1].close()  # has not begun
    begin.background.cancel()
    begin.background.join()
    assert begin.fake("a").done == [Stage.LINT]
    assert "c" not in begin.fakes


def test_what_making_a_run_raises_is_raised_where_it_is_asked_for(begin: Begun) -> None:
    def make(told: OnProgress) -> Any:
        raise ValueError("no such folder")

    run = begin.background.begin(RunSpec(("a.gin",)), STAGES, make, lambda spec: lambda event: None)
    with pytest.raises(ValueError, match="no such folder"):
        run.stage(Stage.LINT)
    with pytest.raises(ValueError, match="no such folder"):
        run.result()


@pytest.mark.parametrize(
    ("cores", "ahead", "expected"), [(1, None, 2), (2, None, 3), (64, None, 4), (1, 5, 6), (8, 0, 1)]
)
def test_how_many_runs_work_at_once(
    cores: int, ahead: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert runs_at_once(ahead) == expected


def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds that another thread brings about."""
    pause = threading.Event()
    for _ in range(int(LONG / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come about")
