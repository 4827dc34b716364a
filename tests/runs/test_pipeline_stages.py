"""A run's stages: each once, in order, only after those that it needs; every process is ended."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import t5x_harness
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import last_line, run_failure
from t5x_harness.runs import pool
from t5x_harness.runs.pipeline import Pipeline
from t5x_harness.runs.several import RunOptions, run_specs
from t5x_harness.runs.stages import stages_of
from t5x_harness.spec import (
    AotMode,
    Finding,
    Location,
    Mode,
    Outcome,
    RunResult,
    RunSettings,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)
from t5x_harness.workers.errors import RunDied

EMBEDDED = Path(t5x_harness.__file__).parent / "embedded"
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
TRAIN_STAGES = tuple(stage for stage in Stage if stage is not Stage.AOT)  # which only runs where it is asked for


class Backend:
    """Stands for the local backend; records what it was asked."""

    made: Sequence[Backend] = ()
    findings: Mapping[Stage, tuple[Finding, ...]] = {}

    not_checked: Mapping[Stage, tuple[str, ...]] = {}
    not_run: Stage | None = None

    def __init__(self, spec: RunSpec, *, failing: Stage | None, dying: Stage | None, **options: Any) -> None:
        self.spec, self.options = spec, options
        self.failing, self.dying = failing, dying
        self.asked: list[Stage] = []
        self.closed = False

    def stage(self, stage: Stage) -> StageResult:
        self.asked.append(stage)
        if stage is self.dying:
            raise RunDied("the run was killed by signal 9", log_tail="last words")
        outcome = Outcome.FAILED if stage is self.failing else Outcome.PASSED
        if stage is self.not_run:
            outcome = Outcome.NOT_RUN
        left_open = self.not_checked.get(stage, ())
        return StageResult(stage, outcome, self.findings.get(stage, ()), exercised=1, not_checked=left_open)

    def result(self) -> RunResult:
        return RunResult(self.spec, (), steps=4, runtime="embedded")

    def close(self) -> None:
        self.closed = True


class Worker:
    """Stands for a zygote."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def warm(self) -> None:
        self.calls.append("warm")

    def kill(self) -> None:
        self.calls.append("kill")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Puts the stand-in in the local backend's place; set ``failing`` or ``dying`` to a stage."""
    settings: dict[str, Any] = {"failing": None, "dying": None, "made": []}

    def make(spec: RunSpec, **options: Any) -> Backend:
        settings["made"].append(Backend(spec, failing=settings["failing"], dying=settings["dying"], **options))
        return settings["made"][-1]

    monkeypatch.setitem(sys.modules, "t5x_harness.runs.local", types.SimpleNamespace(LocalBackend=make))  # type: ignore[arg-type]
    return settings


def _pipeline(
    folder: Path, gin: str = RUN, mode: Mode | None = None, *, strict: bool = False, aot: AotMode | None = None
) -> Pipeline:
    (folder / "run.gin").write_text(gin)
    spec = RunSpec(("run.gin",), mode=mode, cwd=str(folder), settings=RunSettings(strict=strict, aot=aot))
    worker: Any = Worker()
    return Pipeline(spec, zygote=worker, workspace=folder / "work", timeout=5.0, t5x_parent=EMBEDDED)


@pytest.mark.parametrize(
    ("mode", "last"),
    [(Mode.TRAIN, (Stage.TRAIN, Stage.EVAL, Stage.INFER)), (Mode.EVAL, (Stage.EVAL,)), (Mode.INFER, (Stage.INFER,))],
)
def test_the_stages_of_a_mode(mode: Mode, last: tuple[Stage, ...]) -> None:
    assert stages_of(mode) == (Stage.LINT, Stage.RESOLVE, Stage.PLAN, *last)
    assert stages_of(None) == (Stage.LINT,)


def test_the_mode_is_seen_from_the_config(tmp_path: Path, backends: dict[str, Any]) -> None:
    with _pipeline(tmp_path) as pipeline:
        assert pipeline.stages == TRAIN_STAGES
        for stage in pipeline.stages:
            assert pipeline.stage(stage).outcome is Outcome.PASSED
    (backend,) = backends["made"]
    assert backend.spec.mode is Mode.TRAIN
    assert backend.options["workspace"] == tmp_path / "work"
    assert backend.options["timeout"] == 5.0
    assert backend.asked == list(TRAIN_STAGES[1:])
    assert backend.closed
    result = pipeline.result()
    assert [s.stage for s in result.stages] == list(TRAIN_STAGES)
    assert (result.passed, result.steps, result.spec.mode) == (True, 4, Mode.TRAIN)


def test_a_late_stage_brings_those_it_needs_and_each_runs_once(tmp_path: Path, backends: dict[str, Any]) -> None:
    pipeline = _pipeline(tmp_path)
    pipeline.stage(Stage.INFER)
    pipeline.stage(Stage.INFER)
    pipeline.stage(Stage.TRAIN)
    assert backends["made"][0].asked == list(TRAIN_STAGES[1:])


def test_what_two_stages_find_is_said_by_the_later_one(
    tmp_path: Path, backends: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location("run.gin", 7)
    planned = Finding("GIN02", Severity.WARNING, Stage.PLAN, "judged by number", place)
    elsewhere = Finding("GIN02", Severity.WARNING, Stage.PLAN, "another line", Location("run.gin", 3))
    monkeypatch.setattr(Backend, "findings", {Stage.PLAN: (planned, elsewhere)})
    pipeline = _pipeline(tmp_path, RUN + "NOBODY_READS = 1\nNOR_THIS = 2\n")
    assert len(pipeline.stage(Stage.LINT).findings) == 2
    pipeline.stage(Stage.PLAN)
    lint, _, plan = pipeline.result().stages
    assert [f.binding for f in lint.findings] == ["NOR_THIS"]
    assert plan.findings == (planned, elsewhere)


def test_a_finding_of_any_stage_stands_on_the_users_line_and_is_silenced_there(
    tmp_path: Path, backends: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = EMBEDDED.glob("t5x/configs/runs/pretrain.gin")
    found = Location(str(place), 5, (Location("run.gin", 2),))
    findings = tuple(Finding(c, Severity.WARNING, Stage.RESOLVE, "why", found) for c in ("SEQ02", "SEQ18"))
    monkeypatch.setattr(Backend, "findings", {Stage.RESOLVE: findings})
    lines = RUN.replace("pretrain.gin'", "pretrain.gin'  # t5x-harness: ignore[SEQ18]")
    result = _pipeline(tmp_path, lines).stage(Stage.RESOLVE)
    assert [(f.code, f.location, f.message) for f in result.findings] == [
        ("SEQ02", Location("run.gin", 2), "why (t5x/configs/runs/pretrain.gin:5)")
    ]
    assert [f.code for f in result.silenced] == ["SEQ18"]


def test_after_an_error_of_lint_nothing_is_started(tmp_path: Path, backends: dict[str, Any]) -> None:
    pipeline = _pipeline(tmp_path, RUN + "TRAIN_STEPS = 1.5\n")
    result = pipeline.stage(Stage.TRAIN)
    assert (result.outcome, result.not_checked) == (Outcome.NOT_RUN, ("train: not run, because lint failed",))
    assert backends["made"] == []
    assert not pipeline.result().passed


def test_a_failed_stage_leaves_out_what_needs_it_and_names_it(tmp_path: Path, backends: dict[str, Any]) -> None:
    backends["failing"] = Stage.PLAN
    pipeline = _pipeline(tmp_path)
    outcomes = [pipeline.stage(stage).outcome for stage in pipeline.stages]
    assert outcomes == [Outcome.PASSED, Outcome.PASSED, Outcome.FAILED, *[Outcome.NOT_RUN] * 3]
    assert pipeline.stage(Stage.INFER).not_checked == ("infer: not run, because plan failed",)


@pytest.mark.parametrize(("mode", "passed"), [(Mode.TRAIN, True), (Mode.EVAL, False)])
def test_a_run_whose_work_proves_nothing_has_not_passed(
    tmp_path: Path, backends: dict[str, Any], monkeypatch: pytest.MonkeyPatch, mode: Mode, passed: bool
) -> None:
    """Unless it has something else to show, as training has."""
    monkeypatch.setattr(Backend, "not_run", Stage.EVAL)
    monkeypatch.setattr(Backend, "not_checked", {Stage.EVAL: ("eval: not run, because it gave no finite number",)})
    pipeline = _pipeline(tmp_path, RUN if mode is Mode.TRAIN else EVALUATION)
    for stage in pipeline.stages:
        assert not pipeline.stage(stage).errors
    result = pipeline.result()
    assert result.passed is passed
    assert (Stage.EVAL in [stage.stage for stage in result.stages]) is not passed
    report = Report((result,), seconds=1.0)
    assert report.passed is passed
    assert "eval: not run, because it gave no finite number" in report.rows[0].not_checked
    assert last_line(report).startswith("1 passed" if passed else "1 proved nothing")
    if not passed:
        assert run_failure(result).endswith("eval: not run, because it gave no finite number")


def test_a_dead_worker_is_a_finding_with_the_end_of_its_log(tmp_path: Path, backends: dict[str, Any]) -> None:
    backends["dying"] = Stage.TRAIN
    pipeline = _pipeline(tmp_path)
    result = pipeline.stage(Stage.TRAIN)
    assert [(f.code, f.message) for f in result.errors] == [("RUN01", "the run was killed by signal 9")]
    assert result.log_tail == "last words"
    assert pipeline.stage(Stage.EVAL).outcome is Outcome.NOT_RUN


@pytest.mark.stack
def test_what_resolve_settles_is_no_longer_unchecked(tmp_path: Path, backends: dict[str, Any]) -> None:
    (tmp_path / "dense.gin").write_text(
        "from __gin__ import dynamic_registration\nimport flax\nflax.linen.Dense.features = 3\n"
    )
    pipeline = _pipeline(tmp_path, RUN + "include 'dense.gin'\n")
    pipeline.stage(Stage.LINT)
    assert pipeline.result().stages[0].not_checked
    pipeline.stage(Stage.RESOLVE)
    assert not pipeline.result().stages[0].not_checked


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_the_compiler_settles_is_no_longer_unchecked(
    tmp_path: Path, backends: dict[str, Any], monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    monkeypatch.setattr(Backend, "not_checked", {Stage.PLAN: (TEMPORARIES_UNKNOWN, "the epochs")})
    monkeypatch.setattr(Backend, "not_run", None if is_compiled else Stage.AOT)
    pipeline = _pipeline(tmp_path, aot=AotMode.DEPTHS)

    def left_open() -> tuple[str, ...]:
        return next(stage.not_checked for stage in pipeline.result().stages if stage.stage is Stage.PLAN)

    pipeline.stage(Stage.PLAN)
    assert left_open() == (TEMPORARIES_UNKNOWN, "the epochs")
    pipeline.stage(Stage.AOT)
    assert left_open() == (("the epochs",) if is_compiled else (TEMPORARIES_UNKNOWN, "the epochs"))


def test_a_stage_of_another_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a run in mode eval has no stage train; it has lint, resolve, plan, eval"):
        _pipeline(tmp_path, mode=Mode.EVAL).stage(Stage.TRAIN)


def test_a_pipeline_without_a_worker_can_lint_only(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    spec = RunSpec(("run.gin",), cwd=str(tmp_path))
    pipeline = Pipeline(spec, zygote=None, workspace=None, t5x_parent=EMBEDDED)
    assert pipeline.stage(Stage.LINT).outcome is Outcome.PASSED
    with pytest.raises(ValueError, match="can only lint"):
        pipeline.stage(Stage.RESOLVE)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(pool, "worker_for", lambda runtime: made)
    return made


def test_runs_share_one_warmed_worker_that_is_closed(tmp_path: Path, backends: dict[str, Any], worker: Worker) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    specs = [RunSpec(("run.gin",), cwd=str(tmp_path), runtime="embedded", settings=RunSettings(gcs="off"))] * 2
    events: list[str] = []
    results = run_specs(specs, RunOptions(tmp_path / "w"), on_progress=lambda spec: lambda event: events.append("x"))
    assert [result.passed for result in results] == [True, True]
    assert worker.calls == ["warm", "close"]
    made = sorted(b.options["workspace"] for b in backends["made"])  # at once, where there are two cores
    assert made == [tmp_path / "w" / "01-run", tmp_path / "w" / "02-run"]
    assert all(b.closed for b in backends["made"])


@pytest.mark.parametrize(("network", "policy"), [(False, "forbid"), (True, "allow")])
def test_runs_reach_beyond_this_machine_only_if_they_may_and_no_store_around_them(
    network: bool, policy: str, tmp_path: Path, backends: dict[str, Any], worker: Worker
) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    spec = RunSpec(("run.gin",), cwd=str(tmp_path), runtime="embedded", settings=RunSettings(gcs="off"))
    list(run_specs([spec], RunOptions(tmp_path / "w", network=network)))
    [made] = backends["made"]
    assert made.options["env"]["T5X_HARNESS_NETWORK"] == policy
    assert made.options["env"]["T5X_HARNESS_GCS_ROOT"] is None


def test_until_ends_a_run_early(tmp_path: Path, backends: dict[str, Any], worker: Worker) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    spec = RunSpec(
        ("run.gin",), cwd=str(tmp_path), runtime="embedded", settings=RunSettings(gcs="off", until=Stage.PLAN)
    )
    (result,) = run_specs([spec], RunOptions(tmp_path / "w"))
    assert [s.stage for s in result.stages] == [Stage.LINT, Stage.RESOLVE, Stage.PLAN]


@pytest.mark.parametrize(
    ("mode", "until", "stages"),
    [
        (Mode.INFER, Stage.TRAIN, "lint resolve plan"),
        (Mode.EVAL, Stage.EVAL, "lint resolve plan eval"),
        (Mode.TRAIN, Stage.EVAL, "lint resolve plan train eval"),
        (Mode.TRAIN, None, "lint resolve plan train eval infer"),
        (None, Stage.TRAIN, "lint"),
    ],
)
def test_the_last_stage_need_not_be_one_of_the_mode(mode: Mode | None, until: Stage | None, stages: str) -> None:
    assert " ".join(stages_of(mode, until)) == stages


@pytest.mark.parametrize("strict", [False, True])
def test_strictly_a_warning_fails_its_stage_and_leaves_out_the_next(
    tmp_path: Path, backends: dict[str, Any], strict: bool
) -> None:
    pipeline = _pipeline(tmp_path, f"{RUN}\nUNREAD = 1\n", strict=strict)
    resolve = pipeline.stage(Stage.RESOLVE)
    (finding,) = (f for f in pipeline.stage(Stage.LINT).findings if f.code == "GIN02")
    assert finding.severity is (Severity.ERROR if strict else Severity.WARNING)
    assert resolve.outcome is (Outcome.NOT_RUN if strict else Outcome.PASSED)
    assert pipeline.result().passed is not strict


def test_an_interrupted_caller_leaves_no_worker(tmp_path: Path, backends: dict[str, Any], worker: Worker) -> None:
    (tmp_path / "run.gin").write_text(RUN)
    spec = RunSpec(("run.gin",), cwd=str(tmp_path), runtime="embedded", settings=RunSettings(gcs="off"))
    runs = run_specs([spec] * 2, RunOptions(tmp_path / "w"))
    next(runs)
    with pytest.raises(KeyboardInterrupt):
        runs.throw(KeyboardInterrupt())
    assert worker.calls[-2:] == ["kill", "close"]
    assert all(b.closed for b in backends["made"])


def test_two_runs_into_one_folder_are_refused_before_anything_starts(tmp_path: Path, worker: Worker) -> None:
    specs = [
        RunSpec((f"{n}.gin",), cwd=str(tmp_path), settings=RunSettings(model_dir=d))
        for n, d in (("a", "out"), ("b", "./x/../out"))
    ]
    with pytest.raises(
        ValueError, match=r"a and b would both write into ./x/../out: give each run its own --model_dir"
    ):
        list(run_specs(specs, RunOptions(tmp_path / "w")))
    assert worker.calls == []
    assert not (tmp_path / "w").exists()


def test_a_promoted_run_has_the_numbers_of_its_tpu() -> None:
    spec = RunSpec(("run.gin",), mode=Mode.TRAIN, settings=RunSettings(tpu_numerics=True))

    class Promote:
        aot = None

        def __call__(self, known: RunSpec, local: Any) -> Any:
            raise AssertionError("no stage was asked for")

    assert Pipeline(spec, zygote=None, workspace=None).spec.settings.tpu_numerics
    assert not Pipeline(spec, zygote=None, workspace=None, promote=Promote()).spec.settings.tpu_numerics
