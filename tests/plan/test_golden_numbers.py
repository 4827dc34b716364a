"""The TPU compiler's numbers in a golden plan: added, compared with a tolerance, left alone where it did not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.plan.golden import GoldenPlan
from t5x_harness.plan.golden_check import check_golden, check_golden_numbers
from t5x_harness.spec import AotMode, Measure, Outcome, RunResult, RunSettings, RunSpec, Stage, StageResult


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """A run whose plan is kept, without numbers yet."""
    (tmp_path / "run.plan").write_text(GoldenPlan({"A": "1"}, {"plan": {"mesh": "data 8"}}).to_text("one"))
    return RunSpec(("run.gin",), cwd=str(tmp_path), settings=RunSettings(plan_golden="run.plan", aot=AotMode.MEMORY))


def compiled(peak: float, **more: float) -> StageResult:
    measures = (Measure("hbm_peak", peak, "bytes", "train"), *(Measure(n, v, of="train") for n, v in more.items()))
    return StageResult(Stage.AOT, Outcome.PASSED, measures=measures, exercised=1)


def kept(spec: RunSpec) -> dict[str, str]:
    text = Path(spec.cwd, "run.plan").read_text()
    return dict(GoldenPlan.from_text(text).facts["aot"])


def test_numbers_are_added_once_and_may_differ_by_a_hundredth(spec: RunSpec) -> None:
    result = check_golden_numbers(spec, compiled(1000, compile_cpu_seconds=3))
    assert result.facts == (("golden plan", "run.plan: numbers written"),)
    assert kept(spec) == {"mode": "memory", "hbm_peak of train": "1000 bytes"}
    result = check_golden_numbers(spec, compiled(1009))
    assert result.facts == (("golden plan", "run.plan: no number differs by more than 1%"),)
    assert kept(spec)["hbm_peak of train"] == "1000 bytes"


def test_a_peak_that_grows_fails_and_an_update_accepts_it(spec: RunSpec) -> None:
    check_golden_numbers(spec, compiled(1000))
    result = check_golden_numbers(spec, compiled(1100, flops_of_a_device=7))
    assert result.outcome is Outcome.FAILED
    (finding,) = result.findings
    assert (finding.code, finding.stage) == ("PLN01", Stage.AOT)
    assert finding.message.splitlines() == [
        "what the TPU compiler says differs from run.plan by more than 1%:",
        "hbm_peak of train: 1000 bytes -> 1100 bytes (+10.0%)",
        "flops_of_a_device of train: nothing -> 7",
    ]
    (mode,) = check_golden_numbers(spec.with_settings(aot=AotMode.DEPTHS), compiled(1000)).findings
    assert mode.message.splitlines()[1:] == ["mode: memory -> depths"]
    assert check_golden_numbers(spec.with_settings(ignore=("PLN01",)), compiled(1100)).findings == ()
    check_golden_numbers(spec.with_settings(plan_golden_update=True), compiled(1100))
    assert kept(spec)["hbm_peak of train"] == "1100 bytes"


@pytest.mark.parametrize("update", [False, True])
def test_a_plan_without_the_stage_leaves_the_numbers_alone(spec: RunSpec, update: bool) -> None:
    check_golden_numbers(spec, compiled(1000))
    plan = StageResult(Stage.PLAN, Outcome.PASSED, facts=(("mesh", "data 16" if update else "data 8"),))
    Path(spec.cwd, "run.plan").write_text(Path(spec.cwd, "run.plan").read_text().replace("A = 1\n", ""))
    result = check_golden(RunResult(spec.with_settings(aot=None, plan_golden_update=update), (plan,)), {})
    assert result.facts[-1] == ("golden plan", f"run.plan: {'rewritten' if update else 'no difference'}")
    assert kept(spec) == {"mode": "memory", "hbm_peak of train": "1000 bytes"}


def test_what_was_only_lowered_has_no_numbers(spec: RunSpec) -> None:
    before = Path(spec.cwd, "run.plan").read_text()
    assert check_golden_numbers(spec, StageResult(Stage.AOT, Outcome.PASSED)).facts == ()
    assert Path(spec.cwd, "run.plan").read_text() == before
