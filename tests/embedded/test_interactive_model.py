"""interactive_model: a tiny model trains and infers on texts with T5X's numbers."""

import enum
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import jax
import numpy as np
import pytest
import ref_tasks
import seqio
from t5x import adafactor, interactive_model, models, partitioning, trainer
from t5x.examples.t5 import network
from t5x.interactive_model import InferenceType, InteractiveModel, T5XScriptType

EXAMPLES = [
    {"input": "reverse: ab", "target": "ba"},
    {"input": "c", "target": "c"},
    {"input": "reverse", "target": "esrever"},
]
SHAPES = {
    "encoder_input_tokens": (2, 8),
    "decoder_target_tokens": (2, 4),
    "decoder_input_tokens": (2, 4),
    "decoder_loss_weights": (2, 4),
}
# T5X's results for the same model, seed and examples, before and after two steps.
SCORES = [-20.86724090576172, -11.237222671508789, -26.052261352539062]
TRAINED_SCORES = [-20.86532211303711, -11.236405372619629, -26.052490234375]
PREDICTED = [b"7)M", b"\x06", b"7)M"]
PREDICTED_SCORES = [-14.431144714355469, -14.381101608276367, -14.675554275512695]


@pytest.fixture(scope="module", autouse=True)
def _generator() -> Iterator[None]:
    before = jax.config.jax_default_prng_impl
    yield
    jax.config.update("jax_default_prng_impl", before)


def make(folder: Path, checkpoint: str = "", **changed: Any) -> InteractiveModel:
    config = network.T5Config(
        vocab_size=384, dtype="float32", emb_dim=8, num_heads=2, head_dim=4, mlp_dim=8, num_encoder_layers=1,
        num_decoder_layers=1, mlp_activations=("gelu", "linear"), dropout_rate=0.0, logits_via_embedding=False,
    )  # fmt: skip
    optimizer = adafactor.Adafactor(
        decay_rate=0.8, step_offset=0, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    vocab = ref_tasks.VOCAB
    arguments: dict[str, Any] = {
        "batch_size": 2,
        "task_feature_lengths": {"inputs": 8, "targets": 4},
        "output_dir": str(folder),
        "partitioner": partitioning.PjitPartitioner(num_partitions=1),
        "model": models.EncoderDecoderModel(network.Transformer(config), vocab, vocab, optimizer),
        "dtype": "float32",
        "restore_mode": "specific",
        "checkpoint_path": checkpoint,
        "input_shapes": SHAPES,
        "input_types": dict.fromkeys(SHAPES, np.int32),
    }
    return InteractiveModel(**arguments | changed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interactive") / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> InteractiveModel:
    """Makes a new model. The first test trains it for two steps, so no other test asserts its step."""
    return make(folder)


def scores(inferred: Any) -> Any:
    return pytest.approx([score for _, score in inferred], rel=1e-5)


def count(targets: Any, predictions: Any) -> dict[str, Any]:
    return {"count": len(targets), "predicted": predictions, "targets": targets}


def mean(targets: Any, scores: Any) -> dict[str, Any]:
    return {"mean": np.mean(scores)}


def best(targets: Any, predictions: Any, aux_values: Any) -> dict[str, Any]:
    return {"best": max(aux_values["scores"])}


@pytest.mark.journey
@pytest.mark.embedded("T5X fails in it, or looks for checkpoints otherwise")
def test_it_scores_predicts_evaluates_trains_as_t5x_does_and_goes_on(
    model: InteractiveModel, folder: Path, tmp_path: Path
) -> None:
    assert model.step == 0
    scored = model.score(EXAMPLES)
    assert scores(scored) == SCORES
    features = scored[0][0]
    assert features["inputs_pretokenized"] == b"reverse: ab"
    np.testing.assert_array_equal(features["targets"], [101, 100, 1])

    predicted, aux = model.predict_with_aux(EXAMPLES)
    assert [text for _, text in predicted] == PREDICTED
    assert aux == {"scores": pytest.approx(PREDICTED_SCORES, rel=1e-5)}

    assert model.evaluate(EXAMPLES, [count, mean, best]) == {
        "count": 3,
        "predicted": [text.decode() for text in PREDICTED],
        "targets": [b"ba", b"c", b"esrever"],
        "mean": pytest.approx(np.mean(SCORES)),
        "best": pytest.approx(PREDICTED_SCORES[1]),
    }
    assert model.evaluate(EXAMPLES, [mean]) == {"mean": pytest.approx(np.mean(SCORES))}

    model.train_step(EXAMPLES)
    assert float(model.train_summary["cross_ent_loss"].value) == pytest.approx(32.10446548461914)
    assert float(model.train_summary["learning_rate"].value) == pytest.approx(9.99999993922529e-09)
    assert model.step == 1
    after = model.train_loop(1, train_batches=EXAMPLES, score_batches=[EXAMPLES])
    assert (after[0], after[2]) == (None, None)
    assert scores(after[1]) == TRAINED_SCORES
    assert model.step == 2
    assert sorted(os.listdir(folder)) == ["checkpoint_1", "checkpoint_2", "model-info.txt", "train"]

    again = make(folder)
    assert again.step == 2
    np.testing.assert_array_equal(
        again.train_state.params["encoder"]["encoder_norm"]["scale"],
        model.train_state.params["encoder"]["encoder_norm"]["scale"],
    )
    assert make(tmp_path / "other", checkpoint=f"{folder}/checkpoint_1").step == 1


def test_a_preempted_step_saves_a_checkpoint(
    model: InteractiveModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preempted(*_: Any, **__: Any) -> Any:
        raise trainer.PreemptionError("soon")

    saved: list[Any] = []
    monkeypatch.setattr(model.trainer, "train", preempted)
    monkeypatch.setattr(model, "save_checkpoint", lambda: saved.append(model.step))
    with pytest.raises(trainer.PreemptionError, match="soon"):
        model.train_step(EXAMPLES)
    assert saved == [model.step]


@pytest.mark.embedded("T5X fails in it, or looks for checkpoints otherwise")
def test_a_loop_takes_as_many_steps_as_are_asked_for(model: InteractiveModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """T5X takes two steps here, because it repeats a list of batches only a whole number of times."""
    trained: list[Any] = []
    predicted: list[Any] = []
    monkeypatch.setattr(model, "train_step", trained.append)
    monkeypatch.setattr(model, "predict_with_aux", lambda batch: (predicted.append(batch), None))
    model.train_loop(3, eval_period=2, train_batches=[EXAMPLES[:2], EXAMPLES[1:]], predict_batches=[EXAMPLES])
    assert trained == [EXAMPLES[:2], EXAMPLES[1:], EXAMPLES[:2]]
    assert len(predicted) == 2


@pytest.mark.embedded("T5X fails in it, or looks for checkpoints otherwise")
def test_what_it_cannot_do_is_said_in_t5x_s_words(model: InteractiveModel, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"At least one batch of data must be provided\. .*batch_size=2, 1 examples"):
        model.train_step(EXAMPLES[:1])
    with pytest.raises(ValueError, match="Mode must be `predict_with_aux`, or `score`, but instead was score"):
        model.infer_with_preprocessors("score", EXAMPLES, ())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Metric functions must have positional arguments .*Got: \('targets',\)"):
        model.evaluate(EXAMPLES, [lambda targets: {}])
    with pytest.raises(ValueError, match="incorrect type for feature 'inputs' after preprocessing: Got string, exp"):
        model.train_step_with_preprocessors(EXAMPLES, ())
    with pytest.raises(ValueError, match="Duplicate metric key 'mean' in Task"):
        model.evaluate(EXAMPLES, [mean, mean])
    with pytest.raises(ValueError, match="The number of devices available must be a multiple of the number of part"):
        make(tmp_path, partitioner=type("Partitioner", (), {"_model_parallel_submesh": None, "_num_partitions": 999}))


def test_examples_are_read_from_a_task() -> None:
    lengths = {"inputs": 16, "targets": 8}
    batches = interactive_model.get_batches_from_seqio(
        "ref_reverse", "validation", 2, 3, sequence_length=lengths, shuffle=False
    )
    assert [len(batch) for batch in batches] == [2, 2, 2]
    assert batches[0][1] == {"input": b"reverse: item 1001", "target": b"1001 meti"}
    tokens = interactive_model.get_batches_from_seqio(
        "ref_reverse", "validation", 1, 1, get_pretokenized_examples=False, sequence_length=lengths, shuffle=False
    )
    assert tokens[0][0]["target"] == [51, 51, 51, 52, 35, 112, 104, 1]
    with pytest.raises(ValueError, match=r"2 batches of size 10 for a total of 20 examples\. Only 16 available"):
        interactive_model.get_batches_from_seqio("ref_reverse", "validation", 10, 2)


def test_a_task_and_a_config_for_the_scripts_are_made_of_it(
    model: InteractiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    preprocessors = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    try:
        task = interactive_model.get_seqio_task_from_examples("mine", model, EXAMPLES, preprocessors, [count])
        (first, *_) = task.get_dataset({"inputs": 8, "targets": 4}, "train", shuffle=False).as_numpy_iterator()
    finally:
        seqio.TaskRegistry.remove("mine")
    np.testing.assert_array_equal(first["targets"], [101, 100, 1])

    def config(kind: enum.Enum) -> dict[str, Any]:
        text = interactive_model.get_gin_config_from_interactive_model(
            model,
            kind,
            "mine",
            "PARTITIONS = 2",
            "MODEL = 1",
            train_steps=7,  # type: ignore[arg-type]
        )
        lines = [line for line in text.splitlines() if not line.startswith(("include", "import", "from"))]
        parser = gin.config_parser.ConfigParser("\n".join(lines), gin.config.ParserDelegate(skip_unknown=True))
        bindings = [entry for entry in parser if isinstance(entry, gin.config_parser.BindingStatement)]
        return {f"{entry.selector} {entry.arg_name}".strip(): entry.value for entry in bindings if not entry.scope}

    trains = config(T5XScriptType.FINETUNING)
    assert trains["TRAIN_STEPS"] == 7
    assert trains["MIXTURE_OR_TASK_NAME"] == "mine"
    assert trains["TASK_FEATURE_LENGTHS"] == {"inputs": 8, "targets": 4}
    assert (trains["BATCH_SIZE"], trains["PARTITIONS"], trains["MODEL"]) == (2, 2, 1)
    assert trains["utils.SaveCheckpointConfig keep"] == 5
    assert config(T5XScriptType.PRETRAINING) == trains
    evaluates = config(T5XScriptType.EVALUATION)
    assert evaluates["train_script.train total_steps"] == 0
    with pytest.raises(ValueError, match="A checkpoint must be provided to run inference"):
        config(T5XScriptType.INFERENCE)
    restored = interactive_model.utils.RestoreCheckpointConfig(path="/a/checkpoint_3", mode="specific")
    monkeypatch.setattr(model, "_restore_checkpoint_cfg", restored)
    infers = config(T5XScriptType.INFERENCE)
    assert infers["CHECKPOINT_PATH"] == "/a/checkpoint_3"
    assert infers["utils.DatasetConfig pack"] is False
    assert InferenceType.SCORE.value == 2
