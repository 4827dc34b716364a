"""Models are exported as SavedModels that return T5X's numbers for texts, and train steps compile without devices."""

import functools
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import ref_tasks
import seqio
import tensorflow as tf
from recorded import REFERENCE, record
from t5x import adafactor, decoding, export_lib, models, partitioning, precompile, utils
from t5x.examples.t5 import network

VOCAB = ref_tasks.VOCAB
FEATURES = {"inputs": seqio.Feature(VOCAB, add_eos=True), "targets": seqio.Feature(VOCAB, add_eos=True)}
LENGTHS = {"inputs": 16, "targets": 8}


def arguments(folder: Path | str) -> dict[str, Any]:
    config = network.T5Config(
        vocab_size=384, dtype="float32", emb_dim=16, num_heads=8, head_dim=4, mlp_dim=32, num_encoder_layers=2,
        num_decoder_layers=2, mlp_activations=("gelu", "linear"), dropout_rate=0.0, logits_via_embedding=False,
    )  # fmt: skip
    return {
        "model": models.EncoderDecoderModel(network.Transformer(config), VOCAB, VOCAB, adafactor.Adafactor()),
        "inference_mode": "score",
        "restore_checkpoint_cfg": utils.RestoreCheckpointConfig(
            path=f"{REFERENCE}/checkpoint_8", mode="specific", dtype="float32"
        ),
        "exportable_module_cls": export_lib.ExportableModule,
        "partitioner": partitioning.PjitPartitioner(num_partitions=1),
        "output_features": FEATURES,
        "task_feature_lengths": LENGTHS,
        "batch_size": None,
        "output_dir": {"cpu": str(folder)},
        "model_name": "/ml/reverse",
    }


@pytest.mark.journey
def test_a_saved_model_scores_texts_as_the_one_that_t5x_saves(tmp_path: Path) -> None:
    split = functools.partial(export_lib.create_preprocessor, split_separator="|")
    export_lib.save(**arguments(tmp_path / "saved"), create_preprocessor_fn=split)
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    assert serve.structured_input_signature == (
        (),
        {"text_batch": tf.TensorSpec((None,), tf.string, name="text_batch")},
    )
    scores = serve(text_batch=tf.constant(["reverse: item 1000|0001 meti", "a|b"]))["output_0"]
    np.testing.assert_allclose(scores, [-40.762882232666016, -14.487363815307617], rtol=1e-5)


@pytest.mark.embedded("T5X's main looks for the function in t5x.export, where it is not")
def test_t5x_s_config_for_it_is_read(programs: Any, tmp_path: Path) -> None:
    model = record("t5_1_1")["gin"].partition("MIXTURE_OR_TASK_NAME")[0]
    (tmp_path / "case.gin").write_text(
        model.replace("pretrain.gin", "export.gin").replace("import __main__ as train_script\n", "")
        + "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 4}\nDROPOUT_RATE = 0.0\n"
        + "VOCABULARY = @seqio.ByteVocabulary()\nMODEL_NAME = 'x'\nCHECKPOINT_PATH = 'nowhere'\n"
        + "MODEL_OUTPUT_DIR = {'cpu': 'out'}\n"
    )
    status, printed = programs.run("t5x.main", "--run_mode=export", "--dry_run", "--gin_file=case.gin")
    assert status == 0, printed[-2000:]


def test_texts_become_the_features_that_the_task_would_make() -> None:
    preprocess, (spec,) = export_lib.create_preprocessor(2, FEATURES, LENGTHS)
    features = preprocess(tf.constant(["abc", "reverse: item 1000"]))
    assert spec == tf.TensorSpec([2], tf.string, name="text_batch")
    np.testing.assert_array_equal(features["encoder_input_tokens"][0], [100, 101, 102, 1, *[0] * 12])
    assert features["encoder_input_tokens"][1][-1] == 1
    np.testing.assert_array_equal(features["decoder_target_tokens"], [[1, *[0] * 7]] * 2)
    np.testing.assert_array_equal(features["decoder_loss_weights"], [[1, *[0] * 7]] * 2)
    buckets, _ = export_lib.create_preprocessor(2, FEATURES, LENGTHS, bucket_keys={"inputs": [4, 16]})
    assert buckets(tf.constant(["abc", "a"]))["encoder_input_tokens"].shape == (2, 4)
    tokens, (spec,) = export_lib.create_preprocessor(1, FEATURES, LENGTHS, tokenized_inputs=True)
    assert spec == tf.TensorSpec([1, 16], tf.int32, name="text_batch")
    np.testing.assert_array_equal(tokens(tf.range(16)[None])["encoder_input_tokens"], [[*range(15), 1]])


def test_serialized_examples_go_through_the_task() -> None:
    preprocess, _ = export_lib.create_preprocessor_from_task(
        None, {}, LENGTHS, False, model=arguments("")["model"], task_name="ref_reverse"
    )
    values = {name: tf.train.BytesList(value=[text]) for name, text in {"inputs": b"abc", "targets": b"cba"}.items()}
    feature = {name: tf.train.Feature(bytes_list=value) for name, value in values.items()}
    example = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    features = preprocess(tf.constant([example, example]))
    np.testing.assert_array_equal(features["decoder_target_tokens"], [[102, 101, 100, 1, 0, 0, 0, 0]] * 2)


def test_predictions_are_decoded_counted_and_named() -> None:
    tokens = tf.constant([[100, 101, 1, 0]])
    post = export_lib.create_postprocessor(
        VOCAB, "predict", output_feature_names=["text", "score", "length", "used"], add_token_length_to_output=True
    )
    outputs = post((tokens, tf.constant([-1.5])))
    assert outputs["text"].numpy() == [b"ab"]
    assert (outputs["length"].numpy(), outputs["used"].numpy()) == ([4], [2])
    assert export_lib.create_postprocessor(VOCAB, "score")((tokens,)) == (tokens,)
    with pytest.raises(ValueError, match=r"Output feature names \['a'\] must match number of outputs 2"):
        export_lib.create_postprocessor(VOCAB, "predict", output_feature_names=["a"])((tokens, tokens))


def test_beams_are_chosen_also_where_the_batch_size_is_left_open() -> None:
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 2000"), jnp.float32)
    exported = jax.export.export(jax.jit(lambda x: decoding.top_k_two_stage(x, 1)))(rows)
    values, _ = exported.call(jnp.arange(4000.0).reshape(2, 2000))
    np.testing.assert_array_equal(values, [[1999], [3999]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"output_dir": "/a/b"}, r"in the form \$\{BASE\}/\$\{VERSION\}, .* Got a non-numeric version b\."),
        ({"output_dir": None}, "output_dir is mandatory"),
        ({"output_dir": {}}, r'output_dir\["gpu"\] or output_dir\["tpu"\] is mandatory'),
        ({"inference_mode": "train"}, r"`inference_mode` must be a string in \['predict', 'score'\] or a `Custom"),
        ({"mixture_or_task_name": "ref_reverse"}, "Only one of mixture_or_task_name and output_features may be non"),
    ],
)
def test_what_cannot_be_exported_is_said_in_t5x_s_words(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_lib.save(**arguments(tmp_path) | changed)


@pytest.mark.embedded("it is about an environment without TensorFlow Serving")
def test_warmup_examples_fill_each_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = functools.partial(export_lib.write_warmup_examples, ["a"], str(tmp_path), "m", "s")
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    with pytest.raises(ImportError, match="pip install tensorflow-serving-api, or leave out warmup_examples"):
        write(batch_sizes=[3])

    inputs: dict[str, Any] = {"text_batch": tf.make_tensor_proto("")}
    request = types.SimpleNamespace(model_spec=types.SimpleNamespace(), inputs=inputs)
    apis = types.ModuleType("tensorflow_serving.apis")
    apis.predict_pb2 = types.SimpleNamespace(PredictRequest=lambda: request)  # type: ignore[attr-defined]
    apis.prediction_log_pb2 = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow_serving", types.ModuleType("tensorflow_serving"))
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", apis)
    write(batch_sizes=[3], request_to_prediction_log=lambda made: made.inputs["text_batch"])
    (written,) = tf.data.TFRecordDataset(str(tmp_path / "assets.extra/tf_serving_warmup_requests"))
    assert list(tf.make_ndarray(type(tf.make_tensor_proto(0)).FromString(written.numpy()))) == [b"a"] * 3


def test_the_train_step_is_compiled_and_its_programs_are_written(programs: Any, tmp_path: Path) -> None:
    model = record("t5_1_1")["gin"].partition("TRAIN_STEPS")[0].replace("pretrain.gin", "precompile.gin")
    tiny = "network.T5Config.num_encoder_layers = 1\nnetwork.T5Config.num_decoder_layers = 1\n"
    settings = "BATCH_SIZE = 4\nUSE_CACHED_TASKS = False\npartitioning.PjitPartitioner.backend = 'cpu'\n"
    config = model.replace("USE_HARDWARE_RNG = False\n", "")
    (tmp_path / "case.gin").write_text(config + tiny + settings)
    folder = tmp_path / "new/programs"
    status, printed = programs.run(
        "t5x.main", "--run_mode=precompile", "--gin_file=case.gin", f'--gin.MODEL_DIR="{folder}"'
    )
    assert status == 0, printed[-2000:]
    np.testing.assert_array_equal(np.load(folder / "assignment").ravel(), [0, 1])
    before, after = ((folder / f"lowered_hlo_{when}_optimization").read_bytes() for when in ("pre", "post"))
    assert b"jit_train_step" in before
    assert b"jit_train_step" in after
    assert b"all-reduce" in after  # of the gradients, over the two devices
    assert b"all-reduce" not in before


def test_data_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"get_dataset_fn returned unsupported type <class 'list'>\."):
        precompile.precompile(
            model=types.SimpleNamespace(FEATURE_CONVERTER_CLS=None),  # type: ignore[arg-type]
            train_dataset_cfg=utils.DatasetConfig("task", {}, "train", 8, shuffle=False, seed=None),
            partitioner=partitioning.PjitPartitioner(num_partitions=1),
            model_dir="/nowhere",
            random_seed=None,
            get_dataset_fn=lambda *_: [],
        )
