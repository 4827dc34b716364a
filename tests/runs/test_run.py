"""A run's stages run once each, in order, and only after those that they need; every process is ended."""

import functools
import types
from pathlib import Path
from typing import Any

import pytest
from fake_executor import EMBEDDED, FakeExecutor

from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import last_line, run_failure
from t5x_harness.runs import pool
from t5x_harness.runs.job import JobExecutor
from t5x_harness.runs.pool import run_specs
from t5x_harness.runs.run import Run
from t5x_harness.runs.stages import stages_of
from t5x_harness.spec import AotMode, Finding, Location, Mode, Outcome, RunSettings, RunSpec, Severity, Stage

RUN = """\
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
TRAIN_STEPS = 100
DROPOUT_RATE = 0.0
"""
EVALUATION = """\
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/eval.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
CHECKPOINT_PATH = 'gs://my-bucket/run/checkpoint_1000'
EVAL_OUTPUT_DIR = 'gs://my-bucket/eval'
DROPOUT_RATE = 0.0
"""
TRAIN_STAGES = tuple(stage for stage in Stage if stage not in (Stage.AOT, Stage.RESUME))  # which only run if requested


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


def made_of(executor: FakeExecutor, folder: Path, gin: str = RUN, mode: Mode | None = None, **options: Any) -> Run:
    (folder / "run.gin").write_text(gin)
    spec = RunSpec(("run.gin",), mode=mode, cwd=str(folder), settings=RunSettings(**options))
    return Run(spec, executor, workspace=folder / "work", t5x_parent=EMBEDDED)


def test_the_mode_is_seen_from_the_config(tmp_path: Path, executor: FakeExecutor) -> None:
    with made_of(executor, tmp_path) as run:
        assert run.stages == TRAIN_STAGES
        for stage in run.stages:
            assert run.stage(stage).outcome is Outcome.PASSED
    assert run.spec.mode is Mode.TRAIN
    assert executor.asked == list(TRAIN_STAGES[1:])
    assert executor.closed
    result = run.result()
    assert [s.stage for s in result.stages] == list(TRAIN_STAGES)
    assert (result.passed, result.steps, result.spec.mode) == (True, 4, Mode.TRAIN)


def test_a_late_stage_brings_those_it_needs_and_each_runs_once(tmp_path: Path, executor: FakeExecutor) -> None:
    run = made_of(executor, tmp_path)
    run.stage(Stage.INFER)
    run.stage(Stage.INFER)
    run.stage(Stage.TRAIN)
    assert executor.asked == list(TRAIN_STAGES[1:])


def test_what_two_stages_find_is_said_by_the_later_one(tmp_path: Path, executor: FakeExecutor) -> None:
    place = Location("run.gin", 7)
    planned = Finding("GIN02", Severity.WARNING, Stage.PLAN, "judged by number", place)
    elsewhere = Finding("GIN02", Severity.WARNING, Stage.PLAN, "another line", Location("run.gin", 3))
    executor.findings[Stage.PLAN] = (planned, elsewhere)
    run = made_of(executor, tmp_path, RUN + "NOBODY_READS = 1\nNOR_THIS = 2\n")
    assert len(run.stage(Stage.LINT).findings) == 2
    run.stage(Stage.PLAN)
    lint, _, plan = run.result().stages
    assert [f.binding for f in lint.findings] == ["NOR_THIS"]
    assert plan.findings == (planned, elsewhere)


def test_a_finding_of_any_stage_stands_on_the_users_line_and_is_silenced_there(
    tmp_path: Path, executor: FakeExecutor
) -> None:
    (place,) = EMBEDDED.glob("t5x/configs/runs/pretrain.gin")
    found = Location(str(place), 5, (Location("run.gin", 2),))
    findings = tuple(Finding(c, Severity.WARNING, Stage.RESOLVE, "why", found) for c in ("SEQ02", "SEQ18"))
    executor.findings[Stage.RESOLVE] = findings
    lines = RUN.replace("pretrain.gin'", "pretrain.gin'  # t5x-harness: ignore[SEQ18]")
    result = made_of(executor, tmp_path, lines).stage(Stage.RESOLVE)
    assert [(f.code, f.location, f.message) for f in result.findings] == [
        ("SEQ02", Location("run.gin", 2), "why (t5x/configs/runs/pretrain.gin:5)")
    ]
    assert [f.code for f in result.silenced] == ["SEQ18"]


def test_after_an_error_of_lint_nothing_is_started(tmp_path: Path, executor: FakeExecutor) -> None:
    run = made_of(executor, tmp_path, RUN + "TRAIN_STEPS = 1.5\n")
    result = run.stage(Stage.TRAIN)
    assert (result.outcome, result.not_checked) == (Outcome.NOT_RUN, ("train: not run, because lint failed",))
    assert executor.asked == []
    assert not run.result().passed


@pytest.mark.parametrize(("mode", "passed"), [(Mode.TRAIN, True), (Mode.EVAL, False)])
def test_a_run_whose_work_proves_nothing_has_not_passed(
    tmp_path: Path, executor: FakeExecutor, mode: Mode, passed: bool
) -> None:
    """A run passes if it has something else to show, as training does."""
    executor.outcomes[Stage.EVAL] = Outcome.NOT_RUN
    executor.not_checked[Stage.EVAL] = ("eval: not run, because it gave no finite number",)
    run = made_of(executor, tmp_path, RUN if mode is Mode.TRAIN else EVALUATION)
    for stage in run.stages:
        assert not run.stage(stage).errors
    result = run.result()
    assert result.passed is passed
    assert (Stage.EVAL in [stage.stage for stage in result.stages]) is not passed
    report = Report((result,), seconds=1.0)
    assert report.passed is passed
    assert "eval: not run, because it gave no finite number" in report.rows[0].not_checked
    assert last_line(report).startswith("1 passed" if passed else "1 proved nothing")
    if not passed:
        assert run_failure(result).endswith("eval: not run, because it gave no finite number")


@pytest.mark.stack
def test_what_resolve_settles_is_no_longer_unchecked(tmp_path: Path, executor: FakeExecutor) -> None:
    (tmp_path / "dense.gin").write_text(
        "from __gin__ import dynamic_registration\nimport flax\nflax.linen.Dense.features = 3\n"
    )
    run = made_of(executor, tmp_path, RUN + "include 'dense.gin'\n")
    run.stage(Stage.LINT)
    assert run.result().stages[0].not_checked
    run.stage(Stage.RESOLVE)
    assert not run.result().stages[0].not_checked


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_the_compiler_settles_is_no_longer_unchecked(
    tmp_path: Path, executor: FakeExecutor, is_compiled: bool
) -> None:
    executor.not_checked[Stage.PLAN] = (TEMPORARIES_UNKNOWN, "the epochs")
    if not is_compiled:
        executor.outcomes[Stage.AOT] = Outcome.NOT_RUN
    run = made_of(executor, tmp_path, aot=AotMode.DEPTHS)

    def left_open() -> tuple[str, ...]:
        return next(stage.not_checked for stage in run.result().stages if stage.stage is Stage.PLAN)

    run.stage(Stage.PLAN)
    assert left_open() == (TEMPORARIES_UNKNOWN, "the epochs")
    run.stage(Stage.AOT)
    assert left_open() == (("the epochs",) if is_compiled else (TEMPORARIES_UNKNOWN, "the epochs"))


def test_a_stage_of_another_mode_is_refused(tmp_path: Path, executor: FakeExecutor) -> None:
    with pytest.raises(ValueError, match="a run in mode eval has no stage train; it has lint, resolve, plan, eval"):
        made_of(executor, tmp_path, mode=Mode.EVAL).stage(Stage.TRAIN)


def test_a_run_without_an_executor_can_lint_only(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    spec = RunSpec(("run.gin",), cwd=str(tmp_path))
    run = Run(spec, None, t5x_parent=EMBEDDED)
    assert run.stage(Stage.LINT).outcome is Outcome.PASSED
    with pytest.raises(ValueError, match="can only lint"):
        run.stage(Stage.RESOLVE)


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[FakeExecutor]:
    """Puts executors that run nothing in place of the local ones."""
    made: list[FakeExecutor] = []

    def make(_: Any, **options: Any) -> FakeExecutor:
        made.append(FakeExecutor())
        vars(made[-1]).update(options=options)
        return made[-1]

    monkeypatch.setattr("t5x_harness.runs.local.LocalExecutor", make)
    return made


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the calls to a zygote that replaces the runs' own."""
    calls: list[str] = []
    methods = {name: functools.partial(calls.append, name) for name in ("warm", "kill", "close")}
    monkeypatch.setattr(pool, "worker_for", lambda runtime, **given: types.SimpleNamespace(**methods))
    return calls


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    (tmp_path / "run.gin").write_text(RUN)
    return RunSpec(("run.gin",), cwd=str(tmp_path), runtime="embedded", settings=RunSettings(gcs="off"))


def test_runs_share_one_warmed_worker_that_is_closed(
    tmp_path: Path, spec: RunSpec, executors: list[FakeExecutor], called: list[str]
) -> None:
    events: list[str] = []
    results = run_specs([spec] * 2, tmp_path / "w", on_progress=lambda spec: lambda event: events.append("x"))
    assert [result.passed for result in results] == [True, True]
    assert called == ["warm", "close"]
    assert [each.runs[0].workspace for each in executors] == [tmp_path / "w" / "01-run", tmp_path / "w" / "02-run"]
    assert all(each.closed for each in executors)


@pytest.mark.usefixtures("called")
@pytest.mark.parametrize(("network", "policy"), [(False, "forbid"), (True, "allow")])
def test_runs_reach_beyond_this_machine_only_if_they_may_and_no_store_around_them(
    network: bool, policy: str, tmp_path: Path, spec: RunSpec, executors: list[FakeExecutor]
) -> None:
    list(run_specs([spec], tmp_path / "w", network=network))
    [made] = executors
    assert vars(made)["options"]["env"]["T5X_HARNESS_NETWORK"] == policy
    assert vars(made)["options"]["env"]["T5X_HARNESS_GCS_ROOT"] is None


@pytest.mark.parametrize(
    ("mode", "until", "stages"),
    [
        (Mode.INFER, Stage.TRAIN, "lint resolve plan"),
        (Mode.INFER, None, "lint resolve plan infer"),
        (Mode.EVAL, Stage.EVAL, "lint resolve plan eval"),
        (Mode.EVAL, None, "lint resolve plan eval"),
        (Mode.TRAIN, Stage.EVAL, "lint resolve plan train eval"),
        (Mode.TRAIN, None, "lint resolve plan train eval infer"),
        (None, Stage.TRAIN, "lint"),
        (None, None, "lint"),
    ],
)
def test_the_stages_of_a_mode_up_to_the_last_one_asked_for(mode: Mode | None, until: Stage | None, stages: str) -> None:
    assert " ".join(stages_of(RunSpec((), mode=mode, settings=RunSettings(until=until)))) == stages


@pytest.mark.parametrize("strict", [False, True])
def test_strictly_a_warning_fails_its_stage_and_leaves_out_the_next(
    tmp_path: Path, executor: FakeExecutor, strict: bool
) -> None:
    run = made_of(executor, tmp_path, f"{RUN}\nUNREAD = 1\n", strict=strict)
    resolve = run.stage(Stage.RESOLVE)
    (finding,) = (f for f in run.stage(Stage.LINT).findings if f.code == "GIN02")
    assert finding.severity is (Severity.ERROR if strict else Severity.WARNING)
    assert resolve.outcome is (Outcome.NOT_RUN if strict else Outcome.PASSED)
    assert run.result().passed is not strict


def test_an_interrupted_caller_leaves_no_worker(
    tmp_path: Path, spec: RunSpec, executors: list[FakeExecutor], called: list[str]
) -> None:
    results = run_specs([spec] * 2, tmp_path / "w")
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())
    assert called[-2:] == ["kill", "close"]
    assert all(each.closed for each in executors)


def test_two_runs_into_one_folder_are_refused_before_anything_starts(tmp_path: Path, called: list[str]) -> None:
    specs = [
        RunSpec((f"{n}.gin",), cwd=str(tmp_path), settings=RunSettings(model_dir=d))
        for n, d in (("a", "out"), ("b", "./x/../out"))
    ]
    with pytest.raises(
        ValueError, match=r"a and b would both write into ./x/../out: give each run its own --model_dir"
    ):
        list(run_specs(specs, tmp_path / "w"))
    assert called == []
    assert not (tmp_path / "w").exists()


def test_a_promoted_run_has_the_numbers_of_its_tpu() -> None:
    spec = RunSpec(("run.gin",), mode=Mode.TRAIN, settings=RunSettings(tpu_numerics=True))
    no: Any = None
    assert Run(spec, None).spec.settings.tpu_numerics
    assert not Run(spec, JobExecutor(no, no, no)).spec.settings.tpu_numerics
