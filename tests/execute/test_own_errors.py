"""What the harness itself lacks to go on with is told as its own, and not as T5X's."""

from __future__ import annotations

from pathlib import Path

import pytest
import t5x_in_use

t5x_in_use.use()

from t5x_harness.execute.execution import Execution  # noqa: E402
from t5x_harness.spec import Outcome, RunSettings, RunSpec, Stage, StageResult  # noqa: E402


def test_a_stage_that_needs_a_checkpoint_without_one(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("", encoding="utf-8")
    spec = RunSpec(("run.gin",), runtime=t5x_in_use.name, cwd=str(tmp_path))
    run = Execution(spec, tmp_path / "work", t5x_in_use.found(), "", lambda event: None)
    result = StageResult.from_json(run.run(Stage.EVAL, lambda run, report: run.trained_checkpoint()))
    assert result.outcome is Outcome.FAILED
    (error,) = result.findings
    assert error.code == "RUN08"
    assert error.message == "training wrote no checkpoint, so there is none to evaluate or infer with"
    assert error.fix == "let the run save: bind a SaveCheckpointConfig whose period is above 0"


def test_a_jax_without_the_rules_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    from jax.interpreters import mlir

    monkeypatch.setattr(mlir, "_platform_specific_lowerings", {"cpu": {}})
    spec = RunSpec(("run.gin",), settings=RunSettings(tpu_numerics=True))
    run = Execution(spec, tmp_path / "work", t5x_in_use.found(), "", lambda event: None)
    result = StageResult.from_json(run.run(Stage.TRAIN, lambda run, report: None))
    (error,) = result.findings
    assert (error.code, error.message, error.fix) == (
        "RUN08",
        f"--tpu-numerics: JAX {jax.__version__} has no rule for dot_general where JAX 0.10.2 has it",
        "install JAX 0.10.2, or run without --tpu-numerics",
    )
