"""Runs that start from a published model, whose stand-in has the contents of such models, and runs at gs://."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flax import serialization
from local_run import LocalRun

from t5x_harness.execute.output import RunOutput, empty
from t5x_harness.google.pool import GooglePool
from t5x_harness.plan.stored_tree import StoredLayout, layout_of, read_tree
from t5x_harness.spec import Stage
from t5x_harness.variables import ROOT_VARIABLE

Backend = Callable[..., LocalRun]

PUBLISHED = "'gs://t5-data/pretrained_models/t5x/t5_1_1_small/checkpoint_1000000'"
ADAMW = """
import optax
from t5x import optimizers
models.EncoderDecoderModel.optimizer_def = @optimizers.chain()
optimizers.chain.transformations = [@optax.adamw()]
optax.adamw.learning_rate = 0.0001
TRAIN_STEPS = 1_000_500
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
utils.RestoreCheckpointConfig.mode = 'specific'
utils.RestoreCheckpointConfig.path = """


def test_inference_reads_it(backend: Backend, infer_text: str, tmp_path: Path) -> None:
    extra = f"CHECKPOINT_PATH = {PUBLISHED}\n"
    facts = dict(backend(infer_text, extra=extra).passed(Stage.RESOLVE, Stage.PLAN, Stage.INFER).facts)
    assert facts["starts from"] == "a stand-in of the model's shapes at step 1000000"
    tree = read_tree(str(tmp_path / "run/standin/checkpoint_1000000"))
    assert tree is not None
    assert tree.layout is StoredLayout.T5X
    assert {f"state/param_states/decoder/decoder_norm/scale/{m}" for m in ("m", "v", "v_row", "v_col")} < set(
        tree.arrays
    )


def test_evaluation_reads_an_earlier_run_without_orbax(backend: Backend, eval_text: str, tmp_path: Path) -> None:
    extra = "CHECKPOINT_PATH = 'gs://somewhere/run/checkpoint_500'\neval_script.evaluate.use_orbax = False\n"
    backend(eval_text, extra=extra).passed(Stage.RESOLVE, Stage.PLAN, Stage.EVAL)
    tree = read_tree(str(tmp_path / "run/standin/checkpoint_500"))
    assert tree is not None
    assert tree.layout is StoredLayout.T5X


def test_another_optimizer_does_not_find_its_state(backend: Backend, train_text: str) -> None:
    """Two users of T5X encountered this on the job: google-research/t5x issues 569 and 1196."""
    run = backend(train_text, extra=f"{ADAMW}{PUBLISHED}\n")
    run.passed(Stage.RESOLVE, Stage.PLAN)
    result = run.stage(Stage.TRAIN)
    assert [finding.code for finding in result.errors] == ["CKP07"]
    assert result.errors[0].message == (
        "the checkpoint to start from holds the state of another optimizer than the config's"
    )
    assert "assignment_map = [('.*param_states.*', None)] and fallback_to_scratch = True" in str(result.errors[0].fix)


@pytest.mark.journey
def test_another_optimizer_starts_from_the_parameters_alone(backend: Backend, train_text: str) -> None:
    fix = """
utils.RestoreCheckpointConfig.assignment_map = [('.*param_states.*', None)]
utils.RestoreCheckpointConfig.fallback_to_scratch = True
"""
    run = backend(train_text, extra=f"{ADAMW}{PUBLISHED}{fix}")
    assert dict(run.passed(Stage.RESOLVE, Stage.PLAN, Stage.TRAIN).facts)["restored"].startswith("checkpoint_1000004: ")


IN_A_BUCKET = f"""
MODEL_DIR = 'gs://my-bucket/run'
TRAIN_STEPS = 1_000_500
train_script.train.use_orbax = False
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
utils.RestoreCheckpointConfig.mode = 'specific'
utils.RestoreCheckpointConfig.path = {PUBLISHED}
"""


@pytest.fixture
def google() -> Iterator[Mapping[str, str]]:
    """Yields the variables that direct a run to an emulated Google Cloud."""
    if not GooglePool.is_installed():
        pytest.skip("the extra google is not installed")
    made = GooglePool()
    yield made.enter()
    made.close()


@pytest.mark.journey
def test_checkpoints_and_scalars_outlive_the_run(backend: Backend, train_text: str, google: Mapping[str, str]) -> None:
    """This is without orbax, whose manager would delete most; the harness itself makes no manager for MODEL_DIR."""
    run = backend(train_text, extra=IN_A_BUCKET, env=google)
    run.passed(*run.stages)
    result = run.result()
    assert dict(result.stage(Stage.TRAIN).facts)["restored"].startswith("checkpoint_1000004: ")
    assert {"train/loss", "training_eval/ref_reverse/loss"} <= set(result.metrics)
    assert result.predictions
    buckets = Path(google[ROOT_VARIABLE]) / "buckets"
    for checkpoint in (PUBLISHED.strip("'").removeprefix("gs://"), "my-bucket/run/checkpoint_1000004"):
        assert layout_of(str(buckets / checkpoint)) is StoredLayout.T5X
        scale = _stored(buckets / checkpoint)["target"]["decoder"]["decoder_norm"]["scale"]
        assert scale["kvstore"]["bucket"] == "t5x-dummy-bucket"


def _stored(checkpoint: Path) -> dict[str, Any]:
    tree: dict[str, Any] = serialization.msgpack_restore((checkpoint / "checkpoint").read_bytes())["optimizer"]
    return tree


@pytest.mark.parametrize(
    ("restored", "left"),
    [
        ([], []),
        (["gs://mine/run/checkpoint_20/"], ["checkpoint_20"]),
        (["/gcs/mine/run/checkpoint_10"], ["checkpoint_10"]),
        (["gs://mine/run"], ["checkpoint_10", "checkpoint_20"]),
        (["gs://mine/other/checkpoint_20", "/here/checkpoint_10"], []),
    ],
)
def test_checkpoints_that_are_restored_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[str], left: list[str]
) -> None:
    """Evaluation may write next to the checkpoints that it evaluates."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    folder = tmp_path / "buckets" / "mine" / "run"
    for name in ("checkpoint_10/state", "checkpoint_20/state", "train", "inference_eval"):
        (folder / name).mkdir(parents=True)
    (folder / "notes.txt").touch()
    empty(RunOutput("gs://mine/run", folder, is_in_bucket=True), restored)
    assert sorted(path.name for path in folder.iterdir()) == [*left, "notes.txt"]
