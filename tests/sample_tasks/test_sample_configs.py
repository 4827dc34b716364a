"""The sample configs have no findings, and one of each kind runs to the end; `tox run -e smoke` runs all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import t5x_in_use

from t5x_harness.gin.reading import program_of
from t5x_harness.lint.classify import classify_program
from t5x_harness.lint.stage import lint_program
from t5x_harness.runs.run import Run
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import Mode, Outcome, RunSpec, Stage

RUNS = sorted(path.name for path in CONFIGS.glob("*.gin"))
FRAGMENTS = sorted(path.name for path in CONFIGS.glob("models/*.gin"))


def spec_of(name: str) -> RunSpec:
    return RunSpec((name,), search_paths=(".",), runtime=t5x_in_use.name, cwd=str(CONFIGS))


def test_every_kind_of_run_is_there() -> None:
    modes = {name: classify_program(program_of(spec_of(name))).mode for name in RUNS}
    assert {name.partition("_")[0]: mode for name, mode in modes.items()} == {
        "pretrain": Mode.TRAIN,
        "finetune": Mode.TRAIN,
        "eval": Mode.EVAL,
        "infer": Mode.INFER,
    }


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_model_is_not_a_run(name: str) -> None:
    assert classify_program(program_of(spec_of(f"models/{name}"))).mode is None


@pytest.mark.parametrize("name", RUNS)
def test_lint_finds_nothing(name: str) -> None:
    result = lint_program(program_of(spec_of(name)))
    assert (result.outcome, result.findings) == (Outcome.PASSED, ())


@pytest.mark.journey
def test_a_train_config_passes_every_stage_without_a_finding_and_repeats_in_another_process(
    make_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    run = make_run(spec_of("finetune_translate.gin"))
    for stage in run.stages:
        result = run.stage(stage)
        assert (stage, result.outcome, result.findings) == (stage, Outcome.PASSED, ())
        assert result.exercised
    assert ("mesh", "data 4 x model 2") in run.stage(Stage.PLAN).facts

    result = run.result()
    assert (result.steps, [c.step for c in result.checkpoints]) == (10_004, [10_000, 10_002, 10_004])
    assert sorted(result.metrics["train/loss"]) == [10_001, 10_002, 10_003, 10_004]
    assert sorted(result.metrics["inference_eval/sample_translate/eval/bleu"]) == [10_002, 10_004]
    assert {tuple(sorted(line)) for line in result.predictions} == {
        ("input", "output", "prediction", "target"),  # of the evaluation
        ("inputs", "prediction"),
    }
    assert "TRAIN_STEPS = 10004" in result.operative_config
    assert Path(result.model_dir, "model-info.txt").is_file()
    assert ("TRAIN_STEPS", "12000", "10004") in [(c.binding, c.before, c.after) for c in result.changes]

    assert [(c.binding, c.before, c.after) for c in result.changes if c.why == "repeatable"] == [
        ("train/utils.DatasetConfig.seed", "None", "0"),
        ("RANDOM_SEED", "None", "0"),
        ("USE_HARDWARE_RNG", "False", "True"),
    ]
    report = tmp_path / "report.json"
    command = ["run", "finetune_translate.gin", "--until=train", "--json", f"--output={report}"]
    again = [sys.executable, "-m", "t5x_harness", *command, f"--t5x-runtime={t5x_in_use.name}"]
    subprocess.run(again, cwd=CONFIGS, check=True, timeout=300)
    [there] = json.loads(report.read_text())["runs"]
    assert {int(step): loss for step, loss in there["metrics"]["train/loss"].items()} == result.metrics["train/loss"]


def test_an_infer_config_scores_its_targets(make_run: Callable[[RunSpec], Run]) -> None:
    run = make_run(spec_of("infer_answer.gin"))
    for stage in run.stages:
        result = run.stage(stage)
        assert (stage, result.outcome, result.findings) == (stage, Outcome.PASSED, ())
    result = run.result()
    assert len(result.predictions) == 8
    assert all(line["score"] < 0 for line in result.predictions)
    assert {path.name for path in Path(result.model_dir).iterdir()} >= {
        "sample_answer-score.jsonl-00000-of-00001",
        "sample_answer-score.jsonl-00000-of-00001.COMPLETED",
    }
