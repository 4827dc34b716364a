"""Deterministic training as T5X's pretraining guide has it: one that was stopped goes on as if it had not been."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.sample_tasks import CONFIGS

GUIDE = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils

include 'pretrain_span_corruption.gin'

BATCH_SIZE = 8
DROPOUT_RATE = 0.1
train_script.train.eval_period = 2
train_script.train.eval_steps = 1
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 2

train/utils.DatasetConfig.seed = 42
RANDOM_SEED = 42
utils.SaveCheckpointConfig.save_dataset = True
"""


@pytest.mark.journey
def test_stopped_and_resumed_is_as_in_one_go(programs: Any, tmp_path: Path) -> None:
    """To the last bit, dropout too. The third training begins its data anew, and so shows that the others need not."""
    (tmp_path / "guide.gin").write_text(GUIDE)
    flags = ["--gin_file=guide.gin", f"--gin_search_paths={tmp_path},{CONFIGS}"]

    def train(model: str, steps: int, *more: str) -> None:
        model_dir = f'--gin.MODEL_DIR="{tmp_path}/{model}"'
        status, printed = programs.run("t5x.train", *flags, model_dir, f"--gin.TRAIN_STEPS={steps}", *more)
        assert status == 0, printed

    train("whole", 6)
    train("halves", 4)
    shutil.copytree(tmp_path / "halves", tmp_path / "forgetful")
    train("halves", 6)
    train("forgetful", 6, "--gin.utils.SaveCheckpointConfig.save_dataset=False")
    whole, halves, forgetful = (
        programs.call("observe", model_dir=model, final_step=6) for model in ("whole", "halves", "forgetful")
    )
    losses = [run["scalars"]["train"]["loss"] for run in (whole, halves, forgetful)]
    assert sorted(losses[0]) == ["1", "2", "3", "4", "5", "6"]
    assert losses[0] == losses[1]
    assert [step for step in losses[0] if losses[0][step] != losses[2][step]] == ["5", "6"]
    evaluations = [run["scalars"]["training_eval/sample_span_corruption"]["loss"] for run in (whole, halves, forgetful)]
    assert evaluations[0] == evaluations[1] != evaluations[2]
    for run in (whole, halves):
        run["final_state"]["state/step"].pop("dtype")  # restored with SaveCheckpointConfig.dtype, as everything is
    assert whole["final_state"] == halves["final_state"]
