"""Runs that start from and write into gs://, where orbax deletes every folder that it does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flax import serialization
from local_run import LocalRun

from t5x_harness.google.pool import GooglePool
from t5x_harness.plan.stored_tree import StoredLayout, layout_of
from t5x_harness.spec import Outcome, Stage
from t5x_harness.variables import ROOT_VARIABLE

PUBLISHED = "gs://t5-data/pretrained_models/t5x/t5_1_1_small/checkpoint_1000000"
IN_A_BUCKET = f"""
MODEL_DIR = 'gs://my-bucket/run'
TRAIN_STEPS = 1_000_500
train_script.train.use_orbax = False
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
utils.RestoreCheckpointConfig.mode = 'specific'
utils.RestoreCheckpointConfig.path = '{PUBLISHED}'
"""


@pytest.fixture
def google() -> Iterator[Mapping[str, str]]:
    """The variables that lead a run to an emulated Google Cloud."""
    if not GooglePool.is_installed():
        pytest.skip("the extra google is not installed")
    made = GooglePool()
    yield made.enter()
    made.close()


@pytest.mark.journey
def test_checkpoints_and_scalars_outlive_the_run(
    backend: Callable[..., LocalRun], train_text: str, google: Mapping[str, str]
) -> None:
    """Without orbax, whose manager would delete most: the harness makes none for MODEL_DIR of its own."""
    run = backend(train_text, extra=IN_A_BUCKET, env=google)
    for stage in run.stages:
        found = run.stage(stage)
        assert found.outcome is Outcome.PASSED, (found.findings, found.log_tail)
    result = run.result()
    assert dict(result.stage(Stage.TRAIN).facts)["restored"].startswith("checkpoint_1000004: ")
    assert {"train/loss", "training_eval/ref_reverse/loss"} <= set(result.metrics)
    assert result.predictions
    buckets = Path(google[ROOT_VARIABLE]) / "buckets"
    for checkpoint in (PUBLISHED.removeprefix("gs://"), "my-bucket/run/checkpoint_1000004"):
        assert layout_of(str(buckets / checkpoint)) is StoredLayout.T5X
        scale = _stored(buckets / checkpoint)["target"]["decoder"]["decoder_norm"]["scale"]
        assert scale["kvstore"]["bucket"] == "t5x-dummy-bucket"


def _stored(checkpoint: Path) -> dict[str, Any]:
    tree: dict[str, Any] = serialization.msgpack_restore((checkpoint / "checkpoint").read_bytes())["optimizer"]
    return tree
