"""Every public module offers T5X's names with T5X's parameters, defaults, members and bases, also to Gin and pickle."""

import enum
import importlib
import inspect
import json
import pickle
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import jax
import jax.numpy as jnp
import pytest
from t5x import checkpoints, decoding, losses, models, partitioning, utils
from t5x.examples.t5 import layers, network

API: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "api.json").read_text())
LAYERS = "t5x.examples.t5.layers"
"""The module that defines what the layers of other networks share with T5's."""
NAMES = [(module, name) for module, record in API.items() for name in record]
CLASSES = [(module, name) for module, name in NAMES if API[module][name]["kind"] == "class"]


def default_text(default: Any) -> str:
    """Returns a default as the record writes it."""
    if inspect.isfunction(default):
        return f"{default.__module__}.{default.__qualname__}"
    if default is gin.REQUIRED:
        return "?.object"
    return "flax.linen.module._Sentinel" if type(default).__name__ == "_Sentinel" else repr(default)


def parameters(function: Any) -> list[dict[str, str]]:
    listed = []
    for parameter in inspect.signature(function).parameters.values():
        fact = {"kind": parameter.kind.name, "name": parameter.name}
        if parameter.default is not inspect.Parameter.empty:
            fact["default"] = default_text(parameter.default)
        listed.append(fact)
    return listed


@pytest.mark.embedded("names of its parameters differ where T5X gives a function another one of clu")
@pytest.mark.parametrize(("module", "name"), [name for name in NAMES if name not in CLASSES])
def test_a_function_has_the_recorded_signature_and_home(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    assert parameters(function) == API[module][name]["signature"]
    assert function.__module__ in (module, LAYERS)
    assert inspect.getdoc(function)


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_a_class_has_the_recorded_bases_members_and_home(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    record = API[module][name]
    bases = [
        f"{base.__module__}.{base.__qualname__}".replace("typing_extensions.", "typing.") for base in cls.__bases__
    ]
    expected = [base.replace("typing_extensions.", "typing.") for base in record["bases"]]
    if name == "ShardedDatasetIterator":  # clu's base imports TensorFlow, so it is registered when one is made
        expected = ["collections.abc.Iterator"]
    of_t5 = f"{re.sub(r'[.]examples[.][a-z0-9_]+', '.examples.t5', module)}.{name}"
    assert bases == expected or bases == [of_t5] != [f"{module}.{name}"]
    assert cls.__module__ in (module, LAYERS)
    for member, fact in record["members"].items():
        if fact == "property":
            assert isinstance(inspect.getattr_static(cls, member), property)
        elif not issubclass(cls, enum.Enum):
            assert parameters(getattr(cls, member)) == fact


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_type_hints_resolve_in_the_public_module(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    fields = set(API[module][name].get("fields", ()))
    assert fields <= set(typing.get_type_hints(cls)) | {"parent", "name"}


def test_other_names_that_t5x_code_uses_are_there() -> None:
    assert utils.get_local_data is checkpoints.get_local_data
    for name in ("Array", "DType", "PartitionSpec", "PyTree", "Shape", "TensorBoardLogger", "InferStepCallable"):
        assert hasattr(utils, name)


def test_special_normalizing_factors_have_the_numbers_that_pickles_know() -> None:
    assert {factor.name: factor.value for factor in losses.SpecialLossNormalizingFactor} == {
        "NUM_REAL_TARGET_TOKENS": 1,
        "NUM_TOTAL_TARGET_TOKENS": 2,
        "AVERAGE_PER_SEQUENCE": 3,
    }


@pytest.mark.parametrize(
    "thing",
    [decoding.beam_search, models.EncoderDecoderModel, layers.MlpBlock, network.T5Config, utils.get_dataset],
)
def test_definitions_pickle_by_their_public_name(thing: Any) -> None:
    assert pickle.loads(pickle.dumps(thing)) is thing


def test_what_private_modules_define_can_be_pickled_and_says_that_it_is_public() -> None:
    layout = partitioning.DataLayout(batch_size=8, shard_id=0, num_shards=1, is_first_host_in_replica_set=True)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert repr(utils.DatasetConfig) == "<class 't5x.utils.DatasetConfig'>"


@pytest.mark.parametrize(
    ("cls", "missing"),
    [
        (models.BaseModel, {"loss_fn", "predict_batch_with_aux", "score_batch", "get_initial_variables"}),
        (
            models.BaseTransformerModel,
            {"_compute_logits", "predict_batch_with_aux", "score_batch", "get_initial_variables"},
        ),
        (models.EncoderDecoderModel, set()),
        (models.DecoderOnlyModel, set()),
    ],
)
def test_subclasses_must_say_the_same_as_with_t5x(cls: type, missing: set[str]) -> None:
    assert cls.__abstractmethods__ == missing


@pytest.mark.parametrize(
    ("cls", "hooks"),
    [
        (models.BaseTransformerModel, ["_compute_logits", "_compute_metrics"]),
        (models.EncoderDecoderModel, ["_compute_logits_from_slice", "_compute_kv_cache"]),
        (
            models.DecoderOnlyModel,
            ["_compute_logits_from_slice", "_compute_kv_cache", "_get_decoder_causal_attention"],
        ),
    ],
)
def test_hooks_of_subclasses_are_there(cls: type, hooks: list[str]) -> None:
    """Subclasses of T5X's models, such as those in its contrib folder, override or call these methods."""
    assert set(hooks) <= set(vars(cls))


@pytest.fixture
def clean_gin() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


MODEL = """
    from __gin__ import dynamic_registration
    import seqio
    from t5x import decoding
    from t5x import models
    from t5x.examples.t5 import network

    MODEL = @models.EncoderDecoderModel()
    models.EncoderDecoderModel:
      module = @network.Transformer()
      input_vocabulary = @seqio.ByteVocabulary()
      output_vocabulary = @seqio.ByteVocabulary()
      optimizer_def = None
      decode_fn = @decoding.temperature_sample
    models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 3
    models.EncoderDecoderModel.predict_batch_with_aux.return_all_decodes = True
    decoding.temperature_sample.topk = 0
    network.Transformer.config = @network.T5Config()
    network.T5Config:
      vocab_size = 384
      emb_dim = 8
      num_heads = 2
      head_dim = 4
      mlp_dim = 8
      num_encoder_layers = 1
      num_decoder_layers = 1
      dtype = 'float32'
    models.get_output_vocabulary.model = %MODEL
"""


@pytest.mark.usefixtures("clean_gin")
def test_gin_configures_a_model_and_the_arguments_of_its_methods() -> None:
    gin.parse_config(MODEL)
    model = gin.query_parameter("%MODEL").scoped_configurable_fn()
    shape = (2, 4)
    shapes = {"encoder_input_tokens": shape, "decoder_input_tokens": shape}
    variables = jax.jit(lambda key: model.get_initial_variables(key, shapes))(jax.random.PRNGKey(0))
    tokens = jnp.ones(shape, jnp.int32)
    batch = {"encoder_input_tokens": tokens, "decoder_input_tokens": tokens}
    predictions, aux = jax.jit(model.predict_batch_with_aux)(variables["params"], batch)
    assert predictions.shape == (2, 3, 4)
    assert aux["scores"].shape == (2, 3)
    printed = gin.operative_config_str()
    for line in (
        "from t5x import decoding",
        "from t5x.examples.t5 import network",
        "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample",
        "models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 3",
        "decoding.temperature_sample.topk = 0",
        "network.T5Config.emb_dim = 8",
    ):
        assert f"{line}\n" in printed


BINDINGS = """
from __gin__ import dynamic_registration
from t5x import adafactor
from t5x import checkpoints
from t5x import optimizers
from t5x import partitioning
from t5x import utils
adafactor.Adafactor.decay_rate = 0.5
optimizers.adamw.learning_rate = 0.25
partitioning.PjitPartitioner.num_partitions = 1
checkpoints.SaveBestCheckpointer.metric_mode = 'min'
train/utils.DatasetConfig.batch_size = 4
utils.create_learning_rate_scheduler.warmup_steps = 5
utils.TrainStateInitializer.from_scratch.init_rng = 7
utils.ShardedDatasetIterator.save.filename = 'bound'
utils.ShardedDatasetIterator.partitioner = None
"""


class Recorder:
    def __init__(self) -> None:
        self.saved: list[str] = []

    def save(self, filename: str) -> None:
        self.saved.append(filename)


@pytest.mark.usefixtures("clean_gin")
def test_gin_binds_and_prints_arguments_of_configurables_and_of_their_methods() -> None:
    gin.parse_config(BINDINGS)
    assert gin.get_configurable("adafactor.Adafactor")().hyper_params.decay_rate == 0.5
    assert gin.get_configurable("partitioning.PjitPartitioner")()._num_partitions == 1
    assert gin.query_parameter("checkpoints.SaveBestCheckpointer.metric_mode") == "min"
    assert checkpoints.SaveBestCheckpointer.__name__ == "SaveBestCheckpointer"
    printed = gin.config_str()
    for line in [line for line in BINDINGS.splitlines() if "utils" in line]:
        assert f"{line}\n" in printed
    iterator = gin.get_configurable(utils.ShardedDatasetIterator)(Recorder(), global_shapes={})
    iterator.save()
    assert iterator._iterator.saved == ["bound"]
