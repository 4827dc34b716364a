"""Green here means green on the job: whole runs through T5X's own train, evaluate and infer."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from local_run import LocalRun

from t5x_harness.spec import Outcome, RunResult, Stage

Backend = Callable[..., LocalRun]


def run(backend: LocalRun) -> RunResult:
    for stage in backend.stages:
        result = backend.stage(stage)
        assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
        assert result.exercised > 0
    return backend.result()


def facts(result: RunResult, stage: Stage) -> dict[str, str]:
    return dict(result.stage(stage).facts)


@pytest.mark.journey
def test_at_full_size_every_scalar_is_the_one_t5x_recorded(backend: Backend, recorded: Any) -> None:
    """The stages around T5X, the slice's mesh and the cheap compile options change no number."""
    case = recorded("t5_1_1_infer_eval")
    result = run(backend(case["gin"], full_size=True, slice="v3-8"))
    assert result.steps == case["final_step"]
    assert [c.step for c in result.checkpoints] == [0, 4, 8]
    for folder, tags in case["scalars"].items():
        for tag, steps in tags.items():
            found = result.metrics[f"{folder}/{tag}"]
            assert found == {int(step): pytest.approx(value, rel=1e-4) for step, value in steps.items()}, tag
    assert not [c for c in result.changes if c.why == "shrink"]
    # The eval stage restores checkpoint_8 and gets the same result as the eval during training.
    for tag in ("eval/exact_match", "eval/mean_score"):
        in_training = result.metrics[f"inference_eval/ref_reverse/{tag}"][8]
        assert result.metrics[f"eval/inference_eval/ref_reverse/{tag}"][8] == pytest.approx(in_training, rel=1e-5)


@pytest.mark.journey
def test_a_large_config_is_shrunk_and_starts_from_a_stand_in(backend: Backend, train_text: str) -> None:
    """Fine-tunes a base model from a bucket, on a mesh with a model axis, with packing and microbatches."""
    base = """
TASK_FEATURE_LENGTHS = {'inputs': 512, 'targets': 114}
network.T5Config.emb_dim = 768
network.T5Config.num_heads = 12
network.T5Config.head_dim = 64
network.T5Config.mlp_dim = 2048
network.T5Config.num_encoder_layers = 12
network.T5Config.num_decoder_layers = 12
TRAIN_STEPS = 1_020_000
BATCH_SIZE = 128
utils.RestoreCheckpointConfig.path = 'gs://somewhere/t5_1_1_base/checkpoint_1000000'
utils.RestoreCheckpointConfig.mode = 'specific'
partitioning.PjitPartitioner.num_partitions = 2
trainer.Trainer.num_microbatches = 4
utils.SaveCheckpointConfig.period = 5000
train_script.train.eval_period = 1000
"""
    events: list[dict[str, Any]] = []
    result = run(backend(train_text, extra=base, slice="v3-8", on_progress=events.append))
    plan = facts(result, Stage.PLAN)
    assert plan["mesh"] == "data 4 x model 2"
    assert plan["steps"] == "20000, from step 1000000 to 1020000 (TRAIN_STEPS = 1020000)"
    assert plan["starts from"].startswith("gs://somewhere/t5_1_1_base/checkpoint_1000000")
    assert plan["batches"].splitlines()[1].split() == ["train", "128", "32", "128", "32"]
    changes = {c.binding: (c.before, c.after) for c in result.changes if c.why == "shrink"}
    assert changes["network.T5Config.num_heads"] == ("12", "2")
    assert changes["TRAIN_STEPS"] == ("1020000", "1000004")
    assert changes["TASK_FEATURE_LENGTHS"] == ("{'inputs': 512, 'targets': 114}", "{'inputs': 64, 'targets': 16}")
    assert changes["BATCH_SIZE"] == ("128", "8")
    assert result.standins == ("utils.RestoreCheckpointConfig.path: 'gs://somewhere/t5_1_1_base/checkpoint_1000000'",)
    about_it = [text for stage in result.stages for text in stage.not_checked if "gs://somewhere" in text]
    assert about_it == ["whether gs://somewhere/t5_1_1_base/checkpoint_1000000 fits the model: it cannot be read here"]
    assert [c.step for c in result.checkpoints] == [1_000_000, 1_000_002, 1_000_004]
    assert facts(result, Stage.TRAIN)["restored"].startswith("checkpoint_1000004: 146 arrays equal")
    assert sorted(result.metrics["train/loss"]) == [1_000_001, 1_000_002, 1_000_003, 1_000_004]
    assert all(math.isfinite(loss) for loss in result.metrics["train/loss"].values())
    told = [(event["step"], event["of"]) for event in events if event["stage"] == "train" and "step" in event]
    assert told == [(step, 4) for step in range(1, 5)]
    assert result.stage(Stage.TRAIN).exercised == 4
    assert result.stage(Stage.EVAL).exercised == result.stage(Stage.INFER).exercised == 8
    assert {"inputs", "prediction"} <= result.predictions[-1].keys()
    assert "gs://somewhere" not in result.operative_config
    assert result.runtime.startswith("embedded")


def test_a_job_is_sized_for_its_whole_slice(backend: Backend, train_text: str) -> None:
    """The run uses the whole slice: its mesh is not cut, and the batch still has a part for every data position."""
    sizes = "BATCH_SIZE = 128\npartitioning.PjitPartitioner.num_partitions = 2\n"
    run_ = backend(train_text, extra=sizes, slice="v2-128")
    run_.stage(Stage.PLAN)
    job = run_.executor.job(run_, shrink=True, steps=None, standins=False)
    assert job["prepared"]["outcome"] == Outcome.PASSED
    changes = {change["binding"]: change["after"] for change in job["prepared"]["changes"]}
    assert changes["BATCH_SIZE"] == "64"
    assert "mesh" not in changes


@pytest.mark.journey
def test_a_task_without_metrics_is_evaluated_by_its_loss(backend: Backend, train_text: str) -> None:
    """The restored checkpoint also determines the loss, which is that of the eval during training."""
    result = run(backend(train_text, extra="MIXTURE_OR_TASK_NAME = 'no_metrics'\ntrain_script.train.eval_steps = 1\n"))
    assert "no_metrics has no metric_fns" in facts(result, Stage.EVAL)["evaluated by"]
    again = list(result.metrics["eval/training_eval/no_metrics/loss"].values())
    losses = {(m.of, m.step): m.value for m in result.stage(Stage.TRAIN).measures if m.name == "loss"}
    assert losses["train", 1] == result.metrics["train/loss"][1]
    assert losses["train", 4] == result.metrics["train/loss"][4]
    assert losses["training_eval/no_metrics", 4] == result.metrics["training_eval/no_metrics/loss"][4]
    assert again == [pytest.approx(result.metrics["training_eval/no_metrics/loss"][4], rel=1e-5)]
    assert result.stage(Stage.INFER).exercised == 8


def test_an_eval_config_runs_only_its_own_stage(backend: Backend, eval_text: str) -> None:
    run_ = backend(eval_text)
    assert run_.stages == (Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.EVAL)
    result = run(run_)
    assert result.stage(Stage.EVAL).exercised == 8
    assert facts(result, Stage.EVAL)["ref_reverse metrics"].startswith("exact_match 0, mean_score -")
    assert result.standins == ("CHECKPOINT_PATH: %gin.REQUIRED",)
    assert len(result.predictions) == 8
    measured = {(m.of, m.name): m.value for m in result.stage(Stage.EVAL).measures}
    assert measured["ref_reverse", "exact_match"] == 0
    assert measured["ref_reverse", "mean_score"] < 0
    given = {c.binding: c.before for c in result.stage(Stage.RESOLVE).changes if c.why == "given"}
    assert given == {"EVAL_OUTPUT_DIR": "%gin.REQUIRED"}


def test_an_infer_config_runs_only_its_own_stage(backend: Backend, infer_text: str) -> None:
    run_ = backend(infer_text)
    assert run_.stages == (Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.INFER)
    result = run(run_)
    assert result.stage(Stage.INFER).exercised == len(result.predictions) == 8
    assert facts(result, Stage.INFER)["starts from"] == "a stand-in of the model's shapes at step 1234"
