"""Evaluation and inference of checkpoints yield T5X's results from its checkpoint, none of them twice and none lost."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seqio
import tensorflow as tf
from recorded import REFERENCE, same
from t5x import infer, utils
from t5x._errors import ConfigError
from t5x._evaluated import EvaluatedList, by_step, checkpoints_to_evaluate
from t5x._infer_chunks import in_order

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
    results = "ref_reverse-000008.jsonl"
    expected = written(REFERENCE / "inference_eval" / results)
    found = written(output / "inference_eval" / results)
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
    """Makes a folder with checkpoints of the steps 8, 20 and 100."""
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


WRITER = "t5x._infer_chunks:TaskInference._write"
CONFIG = MODEL.partition("seqio.Evaluator.num_examples")[0].replace("eval", "infer").replace("evaluate", "infer")


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Infers the validation split in chunks of two batches of three examples."""
    (tmp_path / "infer.gin").write_text(
        CONFIG + "utils.DatasetConfig.batch_size = 3\nutils.RestoreCheckpointConfig.dtype = 'float32'\n"
    )
    return [
        "--gin_file=infer.gin",
        "--gin.infer.checkpoint_period=2",
        f'--gin.CHECKPOINT_PATH="{REFERENCE}/checkpoint_8"',
        f'--gin.INFER_OUTPUT_DIR="{tmp_path}/out"',
    ]


@pytest.fixture
def recorded_lines() -> list[dict[str, Any]]:
    """Returns T5X's predictions and scores with the same checkpoint, for the first eight examples."""
    return written(REFERENCE / "inference_eval/ref_reverse-000008.jsonl")


@pytest.mark.journey
def test_an_interrupted_inference_is_completed(
    programs: Any, flags: list[str], tmp_path: Path, recorded_lines: list[dict[str, Any]]
) -> None:
    """It is killed while it writes the second of three chunks, and then run again twice."""
    name, parts = "ref_reverse-predict.jsonl-00000-of-00001", tmp_path / "out/tmp-ref_reverse-00000-of-00001"
    programs.die("t5x.infer", *flags, at=WRITER, number=2)
    assert (parts / f"{name}-chunk00000.COMPLETED").exists()
    assert not (parts / f"{name}-chunk00001.COMPLETED").exists()
    assert (parts / "input.ckpt.index").exists()
    first_chunk = (parts / f"{name}-chunk00000").read_text()

    status, printed = programs.run("t5x.infer", *flags, "--alsologtostderr")
    assert status == 0
    assert "Going on from the position in" in printed
    assert "Chunk 0: inference" not in printed
    output = tmp_path / "out"
    assert sorted(path.name for path in output.iterdir()) == ["config.gin", "model-info.txt", name, f"{name}.COMPLETED"]
    text = (output / name).read_text()
    assert text.startswith(first_chunk)
    found = [json.loads(line) for line in text.splitlines()]
    assert len(found) == 16
    assert found[:8] == [
        {
            "inputs": {key: line["input"][key] for key in ("inputs_pretokenized", "targets_pretokenized")},
            "prediction": line["prediction"],
        }
        for line in recorded_lines
    ]

    (output / name).write_text("kept")
    assert programs.run("t5x.infer", *flags)[0] == 0
    assert (output / name).read_text() == "kept"


def test_scores_are_those_of_t5x_shard_by_shard(
    programs: Any, flags: list[str], tmp_path: Path, recorded_lines: list[dict[str, Any]]
) -> None:
    """Infers shard 1 of 2, in chunks that are kept."""
    more = ['--gin.infer.mode="score"', "--gin.infer.num_shards=2", "--gin.infer.merge_chunked_results=False"]
    assert programs.run("t5x.infer", *flags, *more, "--shard_id=1")[0] == 0
    output = tmp_path / "out"
    name = "ref_reverse-score.jsonl-00001-of-00002"
    chunks = sorted((output / "tmp-ref_reverse-00001-of-00002").glob(f"{name}-chunk?????"))
    found = [line for chunk in chunks for line in written(chunk)]
    assert [path.name for path in output.glob("*.*")] == [f"{name}.COMPLETED"]
    assert [set(line) for line in found] == [{"inputs", "score"}] * 8
    scores = {line["input"]["inputs_pretokenized"]: line["score"] for line in recorded_lines}
    compared = [line for line in found if line["inputs"]["inputs_pretokenized"] in scores]
    assert len(compared) == 4
    for line in compared:
        assert line["score"] == pytest.approx(scores[line["inputs"]["inputs_pretokenized"]], rel=1e-4)


def test_a_shard_that_nothing_names_is_refused(programs: Any, flags: list[str], tmp_path: Path) -> None:
    """T5X refuses it in the same way, because it looks up the shard in the config."""
    text = (
        "from __gin__ import dynamic_registration\nimport __main__ as script\n"
        "from t5x import utils\nscript.infer.dataset_cfg = @utils.DatasetConfig()\n"
    )
    (tmp_path / "bare.gin").write_text(text)
    status, printed = programs.run("t5x.infer", "--gin_file=bare.gin")
    assert status == 1
    assert "t5x: error: nothing says which shard to infer: bind infer.shard_id in the config" in printed
    assert "Traceback" not in printed


@pytest.fixture
def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        {"inputs_pretokenized": ["a", "b"], "inputs": [[1, 2], [3, 4]], "weight": [0.5, 1.5], "count": [7, 8]}
    )


def written(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_inputs_are_chosen_by_name(examples: tf.data.Dataset, tmp_path: Path) -> None:
    """Numbers are written as T5X writes them: integers of a feature become floats."""
    path = tmp_path / "lines.jsonl"

    def inputs(**choice: Any) -> Any:
        infer.write_inferences_to_file(str(path), ([1.0, 2.0], {}), examples, "score", **choice)
        return written(path)[1]["inputs"]

    assert inputs() == {"inputs_pretokenized": "b"}
    assert inputs(input_fields_to_include=["inputs", "count"]) == {
        "inputs_pretokenized": "b",
        "inputs": [3, 4],
        "count": 8.0,
    }
    everything = inputs(include_all_inputs=True)
    assert everything == {"inputs_pretokenized": "b", "inputs": [3, 4], "weight": 1.5, "count": 8.0}
    with pytest.raises(ConfigError, match=r"include_all_inputs is True, so input_fields_to_include .*'x'"):
        inputs(include_all_inputs=True, input_fields_to_include=["x"])


def test_predictions_are_decoded_and_their_tokens_end_at_the_padding(examples: tf.data.Dataset, tmp_path: Path) -> None:
    vocabulary = seqio.ByteVocabulary()
    ids = np.array([[*vocabulary.encode("hi"), 0, 0], vocabulary.encode("wide")])
    path = tmp_path / "lines.jsonl"
    inferences = (list(ids), {"scores": [np.float32(-1.5), np.float32(-2.5)]})
    infer.write_inferences_to_file(str(path), inferences, examples, "predict_with_aux", vocabulary, output_ids=True)
    assert written(path) == [
        {
            "inputs": {"inputs_pretokenized": "a"},
            "prediction": "hi",
            "prediction_tokens": [107, 108],
            "aux": {"scores": -1.5},
        },
        {
            "inputs": {"inputs_pretokenized": "b"},
            "prediction": "wide",
            "prediction_tokens": vocabulary.encode("wide"),
            "aux": {"scores": -2.5},
        },
    ]
    with pytest.raises(ConfigError, match="needs a vocabulary to decode with in mode 'predict'"):
        infer.write_inferences_to_file(str(path), inferences, examples, "predict")
    with pytest.raises(ConfigError, match="must be one of predict, score, predict_with_aux, not 'guess'"):
        infer.write_inferences_to_file(str(path), inferences, examples, "guess")


def test_results_are_put_in_the_order_of_the_examples() -> None:
    assert in_order([(2, "c"), (0, "a"), (1, "b")]) == (["a", "b", "c"], {})
    values, aux = in_order(([(1, "b"), (0, "a")], {"scores": [0.2, 0.1], "more": {"ids": np.array([[2], [1]])}}))
    assert values == ["a", "b"]
    assert aux["scores"] == [0.1, 0.2]
    assert [list(row) for row in aux["more"]["ids"]] == [[1], [2]]


def test_a_missing_chunk_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there are no results to write to x\.jsonl: did the input have no"):
        infer.merge_chunks_to_file(str(tmp_path), "x.jsonl", str(tmp_path), None)
    for number in (0, 2):
        (tmp_path / f"x.jsonl-chunk0000{number}").write_text(f"{number}\n")
    with pytest.raises(FileNotFoundError, match=r"there should be 3 chunks of x\.jsonl in .*, but there are 2"):
        infer.merge_chunks_to_file(str(tmp_path), "x.jsonl", str(tmp_path), None)
    (tmp_path / "x.jsonl-chunk00001").write_text("1\n")
    infer.merge_chunks_to_file(str(tmp_path), "x.jsonl", str(tmp_path), 8)
    assert (tmp_path / "x.jsonl").read_text() == "0\n1\n2\n"


def test_a_write_that_fails_in_the_background_is_raised() -> None:
    pool = infer.FailFastThreadPoolExecutor(max_workers=1)
    going_on = threading.Event()
    pool.submit(lambda: going_on.wait() and 1 / 0)
    going_on.set()
    with pytest.raises(ZeroDivisionError):
        pool.shutdown(wait=True)
    pool = infer.FailFastThreadPoolExecutor(max_workers=1)
    done = pool.submit(lambda: 5)
    pool.check_for_exceptions(wait=True)
    pool.shutdown(wait=True)
    assert done.result() == 5


def test_a_task_is_made_of_tfexample_files(tmp_path: Path) -> None:
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for text in ("one", "two"):
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"q": value})).SerializeToString())
    features = {"inputs": seqio.Feature(seqio.ByteVocabulary(), add_eos=True)}
    name = infer.create_task_from_tfexample_file([path], "tfrecord", "q", None, features, task_id=tmp_path.name)
    assert name == f"infer_{tmp_path.name}"
    rows = seqio.get_mixture_or_task(name).get_dataset({"inputs": 8}, "infer", shuffle=False)
    assert [row["inputs_pretokenized"].decode() for row in rows.as_numpy_iterator()] == ["one", "two"]
    with pytest.raises(ConfigError, match=r"no file matches the TFExample paths \['.*missing'\]"):
        infer.create_task_from_tfexample_file([str(tmp_path / "missing")], "tfrecord", "q", None, features)
    with pytest.raises(ConfigError, match="files of type 'recordio' cannot be read; types are tfrecord"):
        infer.create_task_from_tfexample_file([path], "recordio", "q", None, features)
