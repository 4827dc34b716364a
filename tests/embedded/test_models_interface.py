"""Models, decoders, losses, metrics and the T5 network have T5X's names, parameters, defaults and bases."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pickle
import re
import typing
from pathlib import Path
from typing import Any

import gin
import jax
import jax.numpy as jnp
import pytest
from t5x import decoding, losses, models
from t5x.examples.t5 import layers, network

API: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "api.json").read_text())
MODULES = [
    "t5x.losses",
    "t5x.metrics",
    "t5x.decoding",
    "t5x.models",
    "t5x.examples.t5.layers",
    "t5x.examples.t5.network",
    "t5x.examples.decoder_only.layers",
    "t5x.examples.decoder_only.network",
    "t5x.examples.scalable_t5.layers",
    "t5x.examples.scalable_t5.network",
]
LAYERS = "t5x.examples.t5.layers"
"""What other networks' layers have in common with T5's is defined there."""
NAMES = [(module, name, what["kind"]) for module in MODULES for name, what in API[module].items()]
FUNCTIONS = [(module, name) for module, name, kind in NAMES if kind == "function"]
CLASSES = [(module, name) for module, name, kind in NAMES if kind == "class"]


def default_text(default: Any) -> str:
    """A default as the record writes it."""
    if inspect.isfunction(default):
        return f"{default.__module__}.{default.__qualname__}"
    if type(default).__name__ == "_Sentinel":
        return "flax.linen.module._Sentinel"
    return repr(default)


def parameters(function: Any) -> list[dict[str, str]]:
    listed = []
    for parameter in inspect.signature(function).parameters.values():
        fact = {"kind": parameter.kind.name, "name": parameter.name}
        if parameter.default is not inspect.Parameter.empty:
            fact["default"] = default_text(parameter.default)
        listed.append(fact)
    return listed


@pytest.mark.embedded("names of its parameters differ where T5X gives a function another one of clu")
@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_function_has_the_recorded_signature(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    assert parameters(function) == API[module][name]["signature"]
    assert function.__module__ in (module, LAYERS)
    assert inspect.getdoc(function)


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_class_has_the_recorded_bases_and_members(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(module), name)
    record = API[module][name]
    bases = [f"{base.__module__}.{base.__qualname__}" for base in cls.__bases__]
    of_t5 = f"{re.sub(r'[.]examples[.][a-z0-9_]+', '.examples.t5', module)}.{name}"
    assert bases == record["bases"] or bases == [of_t5] != [f"{module}.{name}"]
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


def test_special_normalizing_factors_have_the_numbers_that_pickles_know() -> None:
    assert {factor.name: factor.value for factor in losses.SpecialLossNormalizingFactor} == {
        "NUM_REAL_TARGET_TOKENS": 1,
        "NUM_TOTAL_TARGET_TOKENS": 2,
        "AVERAGE_PER_SEQUENCE": 3,
    }


@pytest.mark.parametrize("thing", [decoding.beam_search, models.EncoderDecoderModel, layers.MlpBlock, network.T5Config])
def test_definitions_pickle_by_their_public_name(thing: Any) -> None:
    assert pickle.loads(pickle.dumps(thing)) is thing


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


# What subclasses of T5X's models, such as those in its contrib folder, override or call.
HOOKS = {
    models.BaseTransformerModel: ["_compute_logits", "_compute_metrics"],
    models.EncoderDecoderModel: ["_compute_logits_from_slice", "_compute_kv_cache"],
    models.DecoderOnlyModel: [
        "_compute_logits_from_slice",
        "_compute_kv_cache",
        "_get_decoder_causal_attention",
    ],
}


@pytest.mark.parametrize(("cls", "hook"), [(cls, hook) for cls, hooks in HOOKS.items() for hook in hooks])
def test_hooks_of_subclasses_are_there(cls: type, hook: str) -> None:
    assert hook in vars(cls)


CONFIG = """
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


@pytest.fixture
def configured_model():
    gin.clear_config()
    gin.parse_config(CONFIG)
    yield gin.query_parameter("%MODEL").scoped_configurable_fn()
    gin.clear_config()


def test_gin_configures_a_model_and_the_arguments_of_its_methods(configured_model: Any) -> None:
    model = configured_model
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
