"""The form of a network in transformers: its run's Gin config, and the model type and settings derived from it."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.conversion.architecture import Architecture
from t5x_harness.conversion.request import ConversionError
from t5x_harness.gin.program import Binding, GinProgram
from t5x_harness.gin.reading import program_of
from t5x_harness.gin.values import Reference
from t5x_harness.lint.stage import missing_gin_files
from t5x_harness.spec import RunSpec

BYTES = "bytes"
"""The user's name for the vocabulary of ByT5."""

_OF_T5 = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"  # from t5.data.get_default_vocabulary()
_BOUND_SIZES = ("num_heads", "head_dim", "emb_dim", "mlp_dim")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A vocabulary.

    Attributes:
      path: the path of its SentencePiece model; None for bytes.
      extra_ids: the number of sentinels that SeqIO adds to the model's own pieces.
    """

    path: str | None
    extra_ids: int = 0

    def __str__(self) -> str:
        return self.path or "bytes"


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """The settings of a model; a setting is None if the config does not contain it.

    Attributes:
      activations: the activations of the feed-forward blocks, by T5X's names.
      dropout_rate: the dropout rate of training.
      vocabulary: the vocabulary of inputs and targets.
      sizes: the sizes of the network, by the names of ``Architecture``.
      doubt: why the vocabulary is not known, in words; empty if it is known or no config was read.
    """

    activations: tuple[str, ...] | None = None
    dropout_rate: float | None = None
    vocabulary: Vocabulary | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    doubt: str = ""


def settings_of(gin_files: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str]) -> ModelSettings:
    """Reads settings from a config without executing it.

    Args:
      gin_files: the files of a model or a run, such as the ``config.gin`` that T5X writes into MODEL_DIR.
      bindings: Gin statements that are parsed after the files.
      search_paths: the folders where files and includes are looked up.

    Raises:
      ConversionError: a file is missing.
    """
    spec = RunSpec(tuple(gin_files), tuple(bindings), tuple(search_paths), cwd=str(Path.cwd()))
    program = program_of(spec)
    for missing in missing_gin_files(program):
        raise ConversionError(missing)
    activations = _value(program, "mlp_activations")
    vocabulary, doubt = _vocabulary(program)
    rate = _value(program, "dropout_rate")
    sizes = {name: _value(program, name) for name in _BOUND_SIZES}
    return ModelSettings(
        activations=tuple(map(str, activations)) if isinstance(activations, list | tuple) else None,
        dropout_rate=float(rate) if isinstance(rate, int | float) else None,
        vocabulary=vocabulary,
        sizes=tuple((name, value) for name, value in sizes.items() if isinstance(value, int)),
        doubt=doubt,
    )


def _value(program: GinProgram, param: str) -> Any:
    """Returns the value of a parameter of the network's config, or None if it has no binding or several of them."""
    networks = {b.target for b in program.final_bindings if b.param == "emb_dim"}
    found = [
        program.resolve(b).value
        for b in program.final_bindings
        if b.param == param and (b.target in networks or b.target.endswith("T5Config"))
    ]
    return found[0] if found and all(value == found[0] for value in found) else None


def _vocabulary(program: GinProgram) -> tuple[Vocabulary | None, str]:
    """Returns the model's vocabulary and an empty text, or None and the reason why it is not known."""
    found = {}
    for param in ("input_vocabulary", "output_vocabulary"):
        for binding in program.final_bindings:
            if binding.param == param:
                found[param] = _of_reference(program, program.resolve(binding).value)
    known = set(found.values())
    if not found:
        return None, "the config binds no input_vocabulary of a model"
    if None in known:
        return None, "the config's vocabulary is made by something other than SeqIO's two classes"
    if len(known) > 1:
        names = " and ".join(sorted(map(str, known)))
        return None, f"inputs and targets have vocabularies of their own: {names}"
    return next(iter(known)), ""


def _of_reference(program: GinProgram, value: Any) -> Vocabulary | None:
    if not isinstance(value, Reference):
        return None
    name = value.selector.rpartition(".")[2]
    if name == "get_default_vocabulary":
        return Vocabulary(_OF_T5)
    extra_ids = _argument(program, value, "extra_ids")
    extra = extra_ids if isinstance(extra_ids, int) else 0
    if name == "ByteVocabulary":
        return Vocabulary(None, extra)
    path = _argument(program, value, "sentencepiece_model_file")
    return Vocabulary(path, extra) if name == "SentencePieceVocabulary" and isinstance(path, str) else None


def _argument(program: GinProgram, reference: Reference, param: str) -> Any:
    bound: Binding | None = program.lookup(reference.target or reference.selector, param, reference.scope)
    return program.resolve(bound).value if bound is not None else None


class ModelType(enum.StrEnum):
    """``model_type`` in config.json; ByT5 is a T5 with a vocabulary of bytes."""

    T5 = "t5"
    MT5 = "mt5"
    UMT5 = "umt5"

    @property
    def model_class(self) -> str:
        """The class that generates text."""
        return {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}[self] + "ForConditionalGeneration"


PAD, EOS = 0, 1

_MT5_ROWS = 250_112
_BYTE_ROWS = 384
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu_new",  # flax.linen.gelu approximates by tanh by default
    "swish": "silu",
    "silu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
"""The names of activations in T5X, which are flax.linen's names, and in transformers."""

SIZES: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "emb_dim": "d_model",
    "num_heads": "num_heads",
    "head_dim": "d_kv",
    "mlp_dim": "d_ff",
    "encoder_layers": "num_layers",
}
"""The names of sizes in ``config.json``, which always has them, by the names of ``Architecture``."""

_MAX_DISTANCE = 128
_EPSILON = 1e-6
_DROPOUT = 0.1


@dataclasses.dataclass(frozen=True)
class Flavor:
    """The form of a model in transformers.

    Attributes:
      model_type: see :class:`ModelType`.
      has_bytes: whether its vocabulary consists of bytes, as in ByT5.
      activations: the activations of feed-forward blocks, by T5X's names.
      assumptions: descriptions of the assumptions that were made.
      warnings: facts that a user of the folder has to know.
    """

    model_type: ModelType
    has_bytes: bool
    activations: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def flavor_of(sizes: Architecture, settings: ModelSettings, asked: str | None = None) -> Flavor:
    """Returns the form of a network in transformers.

    Args:
      sizes: the sizes of the network.
      settings: the settings in its config.
      asked: the model type that the user requests; None to choose one.

    Raises:
      ConversionError: transformers has no such network.
    """
    assumptions: list[str] = []
    vocabulary = settings.vocabulary
    has_bytes = vocabulary.path is None if vocabulary else sizes.vocab_size == _BYTE_ROWS
    if has_bytes and vocabulary is None:
        assumptions.append(f"a vocabulary of bytes, as ByT5 has: the embedding has {_BYTE_ROWS} rows")
    model_type = ModelType(asked) if asked else _chosen(sizes, settings, assumptions)
    if (model_type is ModelType.UMT5) != sizes.bias_per_layer:
        whose = "each layer has" if sizes.bias_per_layer else "all layers share"
        fits = "umt5" if sizes.bias_per_layer else "t5 or mt5"
        raise ConversionError(f"{whose} relative position biases, so the model type is {fits}, not {model_type}")
    if model_type is ModelType.MT5 and not sizes.own_logits:
        raise ConversionError("mt5 in transformers has logits of its own, and these come from the embedding: use t5")
    warnings = []
    if model_type is ModelType.UMT5 and sizes.own_logits:
        warnings.append(
            "transformers 5.0 to 5.23 divides the decoder's output of every umT5 by d_model**0.5, which is right only "
            "where logits come from the embedding: use 5.24 or newer, which reads that from config.json. Greedy "
            "outputs are the same in both; logits, sampling and losses are not"
        )
    activations = _activations(sizes, settings, assumptions)
    return Flavor(model_type, has_bytes, activations, tuple(assumptions), tuple(warnings))


def _chosen(sizes: Architecture, settings: ModelSettings, assumptions: list[str]) -> ModelType:
    if sizes.bias_per_layer:
        return ModelType.UMT5
    path = (settings.vocabulary.path if settings.vocabulary else None) or ""
    if sizes.own_logits and ("mc4" in path or (sizes.vocab_size == _MT5_ROWS and not path)):
        if not path:
            assumptions.append(f"an mT5: the embedding has {_MT5_ROWS} rows")
        return ModelType.MT5
    return ModelType.T5


def _activations(sizes: Architecture, settings: ModelSettings, assumptions: list[str]) -> tuple[str, ...]:
    names = settings.activations
    if names is None:
        names = ("gelu", "linear") if sizes.is_gated else ("relu",)
        assumptions.append(f"mlp_activations = {names}, as in T5 {'1.1' if sizes.is_gated else '1.0'}")
    if (len(names) == 2) != sizes.is_gated or len(names) > 2:
        branches = "wi_0 and wi_1" if sizes.is_gated else "wi"
        raise ConversionError(
            f"the config has mlp_activations = {names}, and the checkpoint's feed-forward blocks have {branches}: "
            "name the config of this checkpoint's run"
        )
    if (len(names) == 2 and names[1] != "linear") or names[0] not in _ACTIVATIONS:
        raise ConversionError(
            f"transformers has no T5 with mlp_activations = {names}; it has one of {', '.join(_ACTIVATIONS)}, alone or "
            "before 'linear'. The arrays alone can be written: --to safetensors"
        )
    return names


def config_json(sizes: Architecture, flavor: Flavor, settings: ModelSettings, dtype: str) -> dict[str, Any]:
    """Returns ``config.json``.

    Args:
      sizes: the sizes of the network.
      flavor: its form in transformers.
      settings: the settings in its config.
      dtype: the name of the element type of most arrays.
    """
    first, *others = flavor.activations
    feed_forward = _ACTIVATIONS[first]
    if others:  # gated-gelu means gelu_new in transformers
        feed_forward = "gated-gelu" if first == "gelu" else f"gated-{feed_forward}"
    return {
        "architectures": [flavor.model_type.model_class],
        "model_type": str(flavor.model_type),
        **{theirs: getattr(sizes, ours) for ours, theirs in SIZES.items()},
        "num_decoder_layers": sizes.decoder_layers,
        "relative_attention_num_buckets": sizes.buckets,
        "relative_attention_max_distance": _MAX_DISTANCE,
        "dropout_rate": _DROPOUT if settings.dropout_rate is None else settings.dropout_rate,
        "layer_norm_epsilon": _EPSILON,
        "initializer_factor": 1.0,
        "feed_forward_proj": feed_forward,
        "is_encoder_decoder": True,
        "use_cache": True,
        "tie_word_embeddings": not sizes.own_logits,
        "torch_dtype": dtype,
        **GENERATION,
    }


GENERATION: Mapping[str, int] = {"decoder_start_token_id": PAD, "eos_token_id": EOS, "pad_token_id": PAD}
"""The special ids; T5X's decoder starts with padding."""
