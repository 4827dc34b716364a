"""Evaluation of checkpoints: the same results as T5X's from its checkpoint, and none evaluated twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded import REFERENCE, same
from t5x import utils
from t5x._errors import ConfigError
from t5x._evaluated import EvaluatedList, by_step, checkpoints_to_evaluate

MODEL = """
from __gin__ import dynamic_registration
import __main__ as eval_script
import seqio
from t5x import trainer
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/eval.gin'
import ref_tasks
MIXTURE_OR_TASK_NAME = "ref_reverse"
TASK_FEATURE_LENGTHS = {"inputs": 32, "targets": 16}
DROPOUT_RATE = 0.0
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config:
  vocab_size = 384
  emb_dim = 16
  num_heads = 8
  head_dim = 4
  mlp_dim = 32
  num_encoder_layers = 2
  num_decoder_layers = 2
  dtype = 'float32'
utils.DatasetConfig.batch_size = 8
utils.DatasetConfig.split = 'validation'
seqio.Evaluator.num_examples = 8
eval_script.evaluate.training_evaluator_cls = @trainer.Trainer
eval_script.evaluate.train_eval_get_dataset_fn = @utils.get_training_eval_datasets
utils.get_training_eval_datasets.eval_steps = 2
"""


def test_evaluates_a_checkpoint_of_t5x_as_recorded(programs: Any, tmp_path: Path) -> None:
    (tmp_path / "eval.gin").write_text(MODEL)
    checkpoint, output = REFERENCE / "checkpoint_8", tmp_path / "out"
    flags = [f'--gin.CHECKPOINT_PATH="{checkpoint}"', f'--gin.EVAL_OUTPUT_DIR="{output}"']
    assert programs.run("t5x.main", "--run_mode=eval", "--gin_file=eval.gin", *flags)[0] == 0

    import json

    def lines(path: Path) -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    results = "ref_reverse-000008.jsonl"
    expected = lines(REFERENCE / "inference_eval" / results)
    found = lines(output / "inference_eval" / results)
    assert [line["prediction"] for line in found] == [line["prediction"] for line in expected]
    assert all(
        same(want.get(key), have.get(key), 1e-4) for want, have in zip(expected, found, strict=True) for key in want
    )
    assert (output / "eval.ref_reverse.ckpt").read_text() == str(checkpoint)
    assert (output / "config.gin").exists()
    assert (output / "model-info.txt").exists()
    scalars = programs.call("scalars", folder="out")
    assert scalars["training_eval/ref_reverse"]["loss"] == {"8": pytest.approx(352.47772216796875, rel=1e-4)}
    assert set(scalars["inference_eval/ref_reverse"]) == {"eval/exact_match", "eval/mean_score"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with checkpoints of the steps 8, 20 and 100."""
    for step in (100, 8, 20):
        shutil.copytree(REFERENCE / "checkpoint_8", tmp_path / f"model/checkpoint_{step}")
    return tmp_path / "model"


def test_an_interrupted_evaluation_of_all_checkpoints_goes_on_with_the_next(folder: Path, tmp_path: Path) -> None:
    done = EvaluatedList(str(tmp_path / "eval.task.ckpt"))
    everything = [str(folder / f"checkpoint_{step}") for step in (8, 20, 100)]

    def remaining() -> list[str]:
        return checkpoints_to_evaluate(utils.RestoreCheckpointConfig(path=str(folder), mode="all"), done)[1]

    assert by_step(remaining()) == everything
    done.add(everything[1])
    assert remaining() == [everything[0], everything[2]]
    done.add(everything[2])
    done.add(everything[0])
    assert remaining() == []
    assert Path(done.path).read_text() == "\n".join(everything)


def test_one_checkpoint_is_evaluated_as_often_as_it_is_asked_for(folder: Path, tmp_path: Path) -> None:
    done = EvaluatedList(str(tmp_path / "eval.task.ckpt"))
    checkpoint = str(folder / "checkpoint_20")
    done.add(checkpoint)
    assert checkpoints_to_evaluate(utils.RestoreCheckpointConfig(path=checkpoint, mode="specific"), done)[1] == [
        checkpoint
    ]


def test_all_checkpoints_of_what_is_no_folder_are_refused(tmp_path: Path) -> None:
    done = EvaluatedList(str(tmp_path / "eval.task.ckpt"))
    done.add("checkpoint_8")
    missing = str(tmp_path / "missing")
    with pytest.raises(
        ConfigError, match=r"RestoreCheckpointConfig\.path .* is not a folder, as it must be with mode 'all'"
    ):
        checkpoints_to_evaluate(utils.RestoreCheckpointConfig(path=missing, mode="all"), done)


def test_checkpoints_are_ordered_by_step_whatever_they_are_called() -> None:
    assert by_step(["b/checkpoint_100", "a/model.ckpt-20", "9", "a/checkpoint_7/"]) == [
        "a/checkpoint_7/",
        "9",
        "a/model.ckpt-20",
        "b/checkpoint_100",
    ]
    with pytest.raises(ConfigError, match=r"'a/model' does not end in a step, such as checkpoint_1000"):
        by_step(["a/model"])
