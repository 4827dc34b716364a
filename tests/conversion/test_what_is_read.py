"""The places that a user may name as a checkpoint, and the messages if one does not fit or is damaged."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import STEP, parameters_of, write

from t5x_harness.conversion.conversion import convert
from t5x_harness.conversion.request import Conversion, ConversionError, ConversionRequest, Form
from t5x_harness.conversion.safetensors_files import ShardedWriter, Tensor
from t5x_harness.conversion.stored import read_t5x
from t5x_harness.variables import ROOT_VARIABLE

SMALL_MODEL = """
from __gin__ import dynamic_registration
import seqio
from t5x import models
from t5x.examples.t5 import network
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = '/nowhere/mc4.250000.100extra/sentencepiece.model'
models.EncoderDecoderModel.input_vocabulary = %VOCABULARY
models.EncoderDecoderModel.output_vocabulary = %VOCABULARY
network.T5Config:
  emb_dim = 16
  num_heads = 3
  head_dim = 4
  mlp_dim = 24
  dropout_rate = 0.05
  mlp_activations = ('swish', 'linear')
"""


def to_transformers(checkpoint: Path | str, tmp_path: Path, **settings: Any) -> Conversion:
    return convert(ConversionRequest(str(checkpoint), Form.TRANSFORMERS, str(tmp_path / "hf"), **settings))


def refused(checkpoint: Path | str, tmp_path: Path, form: Form = Form.TRANSFORMERS, **settings: Any) -> str:
    """Returns why a conversion is refused; the conversion may not leave anything behind."""
    output = tmp_path / "refused"
    with pytest.raises(ConversionError) as error:
        convert(ConversionRequest(str(checkpoint), form, str(output), **settings))
    assert not output.exists() or not any(output.iterdir())
    assert not list(tmp_path.glob(".*"))
    return str(error.value)


def test_a_folder_of_checkpoints_means_the_latest(tmp_path: Path) -> None:
    shutil.copytree(write(tmp_path / "run", "t5_1_1"), tmp_path / "run/checkpoint_900")
    assert to_transformers(tmp_path / "run", tmp_path).source == str(tmp_path / f"run/checkpoint_{STEP}")


def test_settings_come_from_the_config_beside_it(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    (tmp_path / "run/config.gin").write_text(SMALL_MODEL)
    made = to_transformers(checkpoint, tmp_path)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config == {
        "architectures": ["MT5ForConditionalGeneration"],
        "d_ff": 24,
        "d_kv": 4,
        "d_model": 16,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.05,
        "eos_token_id": 1,
        "feed_forward_proj": "gated-silu",
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "mt5",
        "num_decoder_layers": 2,
        "num_heads": 3,
        "num_layers": 3,
        "pad_token_id": 0,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 300,
    }
    assert made.assumptions == ()
    path = "/nowhere/mc4.250000.100extra/sentencepiece.model"
    give = "give it with --vocabulary=PATH or --vocabulary=bytes"
    assert made.left_out[1] == f"the tokenizer: {path} cannot be read from here; copy it, and {give}"


def test_without_a_config_it_says_what_it_takes_for_granted(tmp_path: Path) -> None:
    made = to_transformers(write(tmp_path / "run", "t5_1_0"), tmp_path)
    assert made.assumptions == ("mlp_activations = ('relu',), as in T5 1.0",)
    assert made.left_out[1].startswith("the tokenizer: no config names a vocabulary; give it with --vocabulary=PATH")
    assert json.loads((tmp_path / "hf/config.json").read_text())["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            {"bindings": ("network.T5Config.emb_dim = 32", "network.T5Config.num_heads = 4")},
            "is not of the config's model: num_heads is 3 in the checkpoint and 4 in the config; emb_dim is 16 in the "
            "checkpoint and 32 in the config",
            id="another-size",
        ),
        pytest.param(
            {"bindings": ("network.T5Config.mlp_activations = ('relu',)",)},
            "the config has mlp_activations = ('relu',), and the checkpoint's feed-forward blocks have wi_0 and wi_1",
            id="another-mlp",
        ),
        pytest.param(
            {"bindings": ("network.T5Config.mlp_activations = ('linear', 'gelu')",)},
            "transformers has no T5 with mlp_activations = ('linear', 'gelu'); it has one of relu, gelu, swish",
            id="unknown-activation",
        ),
        pytest.param(
            {"model_type": "umt5"},
            "all layers share relative position biases, so the model type is t5 or mt5, not umt5",
            id="biases",
        ),
        pytest.param(
            {"vocabulary": "/nowhere/x.model"},
            "the vocabulary /nowhere/x.model cannot be read from here: name a copy of it",
            id="vocabulary",
        ),
        pytest.param({"gin_files": ("missing.gin",)}, "missing.gin", id="gin-file"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    imports = ("from __gin__ import dynamic_registration", "from t5x.examples.t5 import network")
    if "bindings" in settings:
        file = tmp_path / "model.gin"
        file.write_text("\n".join((*imports, *settings.pop("bindings"))))
        settings = {"gin_files": (str(file),)}
    assert expected in refused(checkpoint, tmp_path, **settings)


def test_a_vocabulary_of_another_model(tmp_path: Path) -> None:
    from t5x_harness.standins.vocabularies import VocabularySize, model_of

    checkpoint = write(tmp_path / "run", "t5_1_1")
    (tmp_path / "large.model").write_bytes(model_of(VocabularySize(400)))
    message = refused(checkpoint, tmp_path, vocabulary=str(tmp_path / "large.model"), extra_ids=100)
    assert "large.model has 500 ids, and the embedding 300 rows: it is that of another model" in message
    (tmp_path / "text").write_text("not pieces")
    assert "text is not a SentencePiece model" in refused(checkpoint, tmp_path, vocabulary=str(tmp_path / "text"))


def test_every_array_that_does_not_fit_is_named(tmp_path: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["decoder/layers_1/mlp/adapter/kernel"] = np.zeros((4, 4), np.float32)
        arrays["encoder/layers_2/attention/out/kernel"] = np.zeros((16, 12), np.float32)
        del arrays["decoder/layers_0/mlp/wi_1/kernel"]

    checkpoint = write(tmp_path / "run", "t5_1_1", change=change)
    with pytest.raises(ConversionError) as error:
        to_transformers(checkpoint, tmp_path)
    assert str(error.value) == "\n".join(
        (
            f"{checkpoint}: its arrays are not those of a T5 of its sizes (3 + 2 layers, width 16, 3 heads of 4, "
            "feed-forward 24 gated, 300 ids, logits of their own)",
            "  missing: 1",
            "    decoder/layers_0/mlp/wi_1/kernel [16, 24]",
            "  unexpected: 1",
            "    decoder/layers_1/mlp/adapter/kernel [4, 4]",
            "  of another shape: 1",
            "    encoder/layers_2/attention/out/kernel is [16, 12], expected [12, 16]",
            "  fix: convert a checkpoint of one of T5X's own networks; the arrays of any can be written under their "
            "own names: --to safetensors",
        )
    )
    assert not (tmp_path / "hf").exists()


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        for name in [name for name in arrays if name.startswith("decoder/layers_0/")]:
            del arrays[name]

    message = refused(write(tmp_path / "run", "t5_1_1", change=change), tmp_path)
    assert "  missing: 14\n" in message
    assert "    and 2 more\n" in message


def test_a_decoder_alone_is_not_of_the_family(tmp_path: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        for name in [name for name in arrays if not name.startswith("decoder/")]:
            del arrays[name]

    checkpoint = write(tmp_path / "run", "t5_1_1", change=change)
    assert "not a network of the T5 family: it has decoder; T5, mT5, umT5 and ByT5 have" in refused(
        checkpoint, tmp_path
    )
    made = convert(ConversionRequest(str(checkpoint), Form.SAFETENSORS, str(tmp_path / "arrays")))
    assert made.arrays == len(read_t5x(str(checkpoint)).shapes)


def test_what_is_not_a_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "run", "t5_1_1")
    assert refused(tmp_path / "run/checkpoint_7", tmp_path) == (
        f"there is no {tmp_path}/run/checkpoint_7; beside it are checkpoint_{STEP}"
    )
    (tmp_path / "text").write_text("x")
    assert refused(tmp_path / "text", tmp_path).startswith(f"{tmp_path}/text is a file: name the folder")
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", tmp_path).startswith(
        f"{tmp_path}/empty holds no checkpoint, but nothing: one of"
    )


def test_damaged_ones(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    data = checkpoint / "target.decoder.logits_dense.kernel"
    unreadable = f"{checkpoint}: decoder/logits_dense/kernel cannot be read: "
    for file in data.iterdir():
        if not file.name.startswith("."):
            file.write_bytes(b"\0" * 7)
    assert unreadable in refused(checkpoint, tmp_path)
    shutil.rmtree(data)
    assert unreadable in refused(checkpoint, tmp_path)
    (checkpoint / "checkpoint").write_bytes(b"\xc1")
    assert f"{checkpoint}: its metadata cannot be read: " in refused(checkpoint, tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A transformers folder."""
    return Path(to_transformers(write(tmp_path / "run", "t5_1_1"), tmp_path, shard_bytes=30_000).output)


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model_type": "bart"}, r"config.json: model_type is 'bart'; T5X has t5, mt5, umt5"),
        ({"d_kv": None}, r"config.json lacks d_kv: use the file as transformers saved it"),
        (
            {"num_layers": 4},
            r"(?s)its arrays are not those that its config.json says \(4 \+ 2 layers.*missing: 9\n"
            r"    encoder.block.3.layer.0.layer_norm.weight \[16\]",
        ),
        (
            {"d_ff": 25},
            r"(?s)of another shape: 15\n    encoder.block.0.layer.1.DenseReluDense.wi_0.weight is \[24, 16\], "
            r"expected \[25, 16\]",
        ),
        (
            {"tie_word_embeddings": True},
            r"lm_head.weight differs from shared.weight, and the decoder's output is scaled",
        ),
    ],
)
def test_a_folder_of_transformers_with_another_config(
    model: Path, tmp_path: Path, values: dict[str, Any], expected: str
) -> None:
    change_config(model, **values)
    assert re.search(expected, refused(model, tmp_path, Form.T5X))


def test_a_folder_of_transformers_that_is_damaged(model: Path, tmp_path: Path) -> None:
    assert "is a folder of transformers already: --to t5x" in refused(model, tmp_path)
    files = sorted(model.glob("*.safetensors"))
    content = files[1].read_bytes()
    files[1].write_bytes(content[:-100])
    assert re.search(rf"{files[1]} is damaged: .* should lie at bytes", refused(model, tmp_path, Form.T5X))
    files[1].write_bytes(b"<html>")
    assert f"{files[1]} is not a file of safetensors, or it is cut off" in refused(model, tmp_path, Form.T5X)
    files[1].unlink()
    assert refused(model, tmp_path, Form.T5X) == f"{model} lacks 1 of {len(files)} files: {files[1].name}"
    (model / "model.safetensors.index.json").unlink()
    (model / "pytorch_model.bin").touch()
    assert "save it again with save_pretrained(…, safe_serialization=True)" in refused(model, tmp_path, Form.T5X)
    (model / "config.json").write_text("{")
    assert "config.json is not JSON" in refused(model, tmp_path, Form.T5X)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"t5x_names": "1"}, "says no train step, and the checkpoint's folder is named by it: give one"),
        ({}, "has no config.json, and its arrays are not under T5X's names"),
    ],
)
def test_arrays_that_make_no_checkpoint(tmp_path: Path, metadata: dict[str, str], expected: str) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    ShardedWriter(folder, [Tensor("x", (2,), "float32")], metadata, 1000)
    assert expected in refused(folder, tmp_path, Form.T5X)


def as_tensorflow(name: str) -> str:
    """Returns the name of a T5X array in Mesh TensorFlow's T5."""
    stack, _, rest = name.partition("/")
    if name == "token_embedder/embedding":
        return "shared/embedding"
    if rest == "relpos_bias/rel_embedding":
        return f"{stack}/block_000/layer_000/SelfAttention/relative_attention_bias"
    if rest.endswith("_norm/scale") and "layers" not in rest:
        return f"{stack}/final_layer_norm/scale"
    _, number, part, *tail = re.split(r"layers_(\d+)/", rest)[0:2] + rest.split("/")[1:]
    last = 1 if stack == "encoder" else 2
    block = f"{stack}/block_{int(number):03d}/layer_"
    match part:
        case "mlp":
            return f"{block}{last:03d}/DenseReluDense/{tail[0]}/kernel"
        case "attention" | "self_attention" | "encoder_decoder_attention":
            of, layer = ("EncDecAttention", 1) if part.startswith("encoder_") else ("SelfAttention", 0)
            return f"{block}{layer:03d}/{of}/{ {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}[tail[0]] }"
    layer = {"pre_mlp_layer_norm": last, "pre_cross_attention_layer_norm": 1}.get(part, 0)
    return f"{block}{layer:03d}/layer_norm/scale"


@pytest.mark.parametrize("named", ["model.ckpt-1000", ""])
def test_one_of_tensorflow(tmp_path: Path, named: str) -> None:
    import tensorflow as tf

    arrays = parameters_of("t5_1_0")
    variables = {as_tensorflow(name): array for name, array in arrays.items()} | {"global_step": np.int64(1000)}
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt-1000"),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=list(variables.values()),
    )
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1000"\n')
    made = to_transformers(tmp_path / named, tmp_path)
    assert (made.layout, made.step, made.arrays) == ("TensorFlow", 1000, len(arrays))
    back = convert(ConversionRequest(made.output, Form.T5X, str(tmp_path / "back")))
    read = read_t5x(back.output)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read.read(name), array, err_msg=name)


def test_in_an_emulated_bucket_that_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "buckets/my-bucket/run", "t5_1_1")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    address = "/gcs/my-bucket"
    convert(ConversionRequest(f"{address}/run/checkpoint_{STEP}", Form.TRANSFORMERS, f"{address}/hf"))
    assert (tmp_path / "buckets/my-bucket/hf/model.safetensors").is_file()
    back = convert(ConversionRequest(f"{address}/hf", Form.T5X, f"{address}/back"))
    assert back.output == str(tmp_path / f"buckets/my-bucket/back/checkpoint_{STEP}")
    with pytest.raises(ConversionError, match=r"hf holds config.json, generation_config.json, model.saf.* already"):
        convert(ConversionRequest(f"{address}/run", Form.TRANSFORMERS, f"{address}/hf"))
    assert sorted(path.name for path in (tmp_path / "buckets/my-bucket").iterdir()) == ["back", "hf", "run"]
