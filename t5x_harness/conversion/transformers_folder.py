"""Writes and reads transformers folders: configs, the arrays as safetensors, and the tokenizer."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from t5x_harness.buckets.emulated import local_path
from t5x_harness.buckets.reach import is_unreachable
from t5x_harness.conversion.architecture import (
    EMBEDDING,
    LOGITS,
    Architecture,
    ParameterMapping,
    parameters,
    require_same,
)
from t5x_harness.conversion.flavors import GENERATION, SIZES, Flavor, ModelSettings, ModelType, Vocabulary, config_json
from t5x_harness.conversion.request import ConversionError
from t5x_harness.conversion.safetensors_files import Array, SafetensorsFolder, ShardedWriter, Tensor, json_object
from t5x_harness.conversion.stored import StoredParameters

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
STEP, LAYOUT = "t5x_step", "t5x_layout"
"""The keys of header texts from which the original T5X checkpoint can be restored."""

_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_LEFT_OVER = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # transformers also skips it
_DECODER_LAYERS, _BUCKETS = "num_decoder_layers", "relative_attention_num_buckets"
_LARGEST = 2**31 - 1


def write_transformers(
    folder: Path,
    source: StoredParameters,
    sizes: Architecture,
    flavor: Flavor,
    settings: ModelSettings,
    shard_bytes: int,
) -> list[Path]:
    """Writes the model without a tokenizer, with one array of the checkpoint in memory at a time.

    Args:
      folder: an empty folder.
      source: the checkpoint, whose arrays fit ``sizes``.
      sizes: the sizes of the network.
      flavor: its form in transformers.
      settings: the settings in its config.
      shard_bytes: the maximum data in a file, in bytes.

    Returns:
      The files that were written.
    """
    wanted = parameters(sizes)
    tensors = [
        Tensor(piece, parameter.piece_shape, source.tensors[parameter.name].dtype)
        for parameter in wanted
        for piece in parameter.pieces
    ]
    layout = {"scan_axis": sizes.scan_axis, "joined_heads": sizes.joined_heads}
    metadata = {"format": "pt", LAYOUT: json.dumps(layout)}
    if source.step is not None:
        metadata[STEP] = str(source.step)
    writer = ShardedWriter(folder, tensors, metadata, shard_bytes)
    for parameter in wanted:
        for piece, array in parameter.to_pieces(source.read(parameter.name)):
            writer.write(piece, array)
    most = Counter(tensor.dtype for tensor in tensors).most_common(1)[0][0]
    _write_json(folder / CONFIG, config_json(sizes, flavor, settings, most))
    _write_json(folder / GENERATION_CONFIG, GENERATION)
    return [*writer.files, folder / CONFIG, folder / GENERATION_CONFIG]


def read_transformers(folder: Path, scanned: bool | None = None) -> tuple[StoredParameters, Architecture]:
    """Opens a transformers model as T5X parameters.

    Args:
      folder: a folder with config.json and safetensors.
      scanned: whether T5X should scan the model's layers; None for the original layout, or umT5's default.

    Returns:
      The parameters, each assembled when it is read, and their sizes.

    Raises:
      ConversionError: the model is not a T5, its arrays do not match its config, or a file is damaged.
    """
    config = read_json(folder / CONFIG)
    if config.get("model_type") not in list(ModelType):
        raise ConversionError(
            f"{folder / CONFIG}: model_type is {config.get('model_type')!r}; T5X has {', '.join(ModelType)}"
        )
    arrays = SafetensorsFolder(folder)
    sizes = _sizes(folder, config, arrays, scanned)
    wanted = parameters(sizes)
    found = {name: tensor.shape for name, tensor in arrays.tensors.items()}
    left_out = [
        name for name in (*_COPIES, *(() if sizes.own_logits else (LOGITS,))) if name in found and _same(arrays, name)
    ]
    for name in (*left_out, _LEFT_OVER):
        found.pop(name, None)
    require_same(
        f"{folder}: its arrays are not those that its {CONFIG} says ({sizes})",
        found,
        [(piece, parameter.piece_shape) for parameter in wanted for piece in parameter.pieces],
        f"use the {CONFIG} that was saved with these arrays",
    )
    by_name = {parameter.name: parameter for parameter in wanted}
    source = StoredParameters(
        where=str(folder),
        layout="transformers",
        tensors={
            name: Tensor(name, parameter.shape, arrays.tensors[parameter.pieces[0]].dtype)
            for name, parameter in by_name.items()
        },
        step=arrays.number(STEP),
        others=len(left_out),
        read_array=lambda name: _put_together(by_name[name], arrays),
    )
    return source, sizes


def _put_together(parameter: ParameterMapping, arrays: SafetensorsFolder) -> Array:
    if parameter.scan_axis is None:
        return np.ascontiguousarray(parameter.piece_to_layer(arrays.read(parameter.pieces[0])))
    whole: Array | None = None
    for index, piece in enumerate(parameter.pieces):
        layer = parameter.piece_to_layer(arrays.read(piece))
        whole = np.empty(parameter.shape, layer.dtype) if whole is None else whole
        whole[(slice(None),) * parameter.scan_axis + (index,)] = layer
    assert whole is not None
    return whole


def _sizes(folder: Path, config: Mapping[str, Any], arrays: SafetensorsFolder, scanned: bool | None) -> Architecture:
    """Returns the architecture that a config and its arrays describe."""
    missing = [theirs for theirs in SIZES.values() if config.get(theirs) is None]
    if missing:
        raise ConversionError(f"{folder / CONFIG} lacks {', '.join(missing)}: use the file as transformers saved it")
    decoder_layers = config.get(_DECODER_LAYERS) or config["num_layers"]
    buckets = config.get(_BUCKETS, 32)
    # The names of a stack with more layers than arrays might not fit into memory.
    numbers = {theirs: (config[theirs], _LARGEST) for theirs in SIZES.values()} | {_BUCKETS: (buckets, _LARGEST)}
    most_layers = max(1, len(arrays.tensors))
    numbers |= {"num_layers": (config["num_layers"], most_layers), _DECODER_LAYERS: (decoder_layers, most_layers)}
    for theirs, (value, most) in numbers.items():
        if type(value) is not int or not 0 < value <= most:
            raise ConversionError(
                f"{folder / CONFIG}: {theirs} is {value!r}, and a whole number from 1 to {most} is expected: use the "
                "file that was saved with these arrays"
            )
    is_umt5 = config["model_type"] == ModelType.UMT5
    has_head = LOGITS in arrays.tensors and not _same(arrays, LOGITS)
    own_logits = has_head or config.get("tie_word_embeddings") is False
    is_scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    # Before 5.24, transformers saved every umT5 with tie_word_embeddings = true, which has no meaning for these models.
    tells = config["model_type"] == ModelType.T5 or (is_umt5 and "scale_decoder_outputs" in config)
    if tells and bool(is_scaled) is own_logits:
        raise ConversionError(
            f"{folder}: {LOGITS} {'differs from' if own_logits else 'is'} {EMBEDDING}, and the decoder's output is "
            f"{'' if is_scaled else 'not '}scaled (scale_decoder_outputs): T5X scales it where logits come from the "
            "embedding, and nowhere else"
        )
    scan_axis, joined_heads = _layout(folder, arrays.metadata, is_umt5)
    if scanned is not None and is_umt5:
        scan_axis = (1 if scan_axis is None else scan_axis) if scanned else None
    return Architecture(
        **{ours: config[theirs] for ours, theirs in SIZES.items()},
        decoder_layers=decoder_layers,
        is_gated=str(config.get("feed_forward_proj", "relu")).startswith("gated-"),
        own_logits=own_logits,
        buckets=buckets,
        bias_per_layer=is_umt5,
        joined_heads=joined_heads,
        scan_axis=scan_axis,
    )


def _layout(folder: Path, metadata: Mapping[str, str], is_umt5: bool) -> tuple[int | None, bool]:
    """Returns the axis of scanned layers and whether heads are joined, from the headers or else T5X's defaults."""
    try:
        layout = json_object(metadata.get(LAYOUT, "{}"))
        match layout.get("scan_axis", 1 if is_umt5 else None), layout.get("joined_heads", not is_umt5):
            case (None | 0 | 1) as scan_axis, bool(joined_heads) if not isinstance(scan_axis, bool):
                return scan_axis, joined_heads
    except ValueError:
        pass
    raise ConversionError(f"{folder}: {LAYOUT} in the header of its arrays is damaged: {metadata[LAYOUT]!r:.200}")


def _same(arrays: SafetensorsFolder, name: str) -> bool:
    """Returns whether an array equals the embedding."""
    if EMBEDDING not in arrays.tensors or arrays.tensors[name].shape != arrays.tensors[EMBEDDING].shape:
        return False
    return bool(np.array_equal(arrays.read(name), arrays.read(EMBEDDING)))


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
      ConversionError: the file is missing or is not a JSON object.
    """
    try:
        return json_object(file.read_bytes())
    except OSError as error:
        raise ConversionError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConversionError(f"{file} is not JSON: {error}") from None


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


TOKENIZER_CONFIG, PIECES = "tokenizer_config.json", "spiece.model"

_BYTE_IDS = 259  # 256 bytes after padding, end of sequence and unknown
_SENTINELS_OF_BYT5 = 125
_SENTINEL = "<extra_id_"
_SPECIAL = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
_HOW = "give it with --vocabulary=PATH or --vocabulary=bytes"


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A tokenizer that was written or left out.

    Attributes:
      files: the files that were written.
      left_out: why there are no files, in words.
      warnings: the differences from SeqIO's vocabulary, in words.
    """

    files: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def write_tokenizer(
    folder: Path, sizes: Architecture, flavor: Flavor, settings: ModelSettings, *, required: bool = False
) -> Tokenizer:
    """Writes the files of the tokenizer next to a model.

    Args:
      folder: the folder of the model.
      sizes: the sizes of its network.
      flavor: its form in transformers.
      settings: the settings in its config.
      required: whether the user named the vocabulary, which makes it an error if it cannot be read.

    Raises:
      ConversionError: the vocabulary does not fit the embedding, is not a SentencePiece model, or is required and
        cannot be read.
    """
    vocabulary = settings.vocabulary
    if flavor.has_bytes:
        if sizes.vocab_size < _BYTE_IDS + (vocabulary.extra_ids if vocabulary else 0):
            rows = f"the embedding {sizes.vocab_size} rows"
            raise ConversionError(f"the vocabulary of bytes has {_BYTE_IDS} ids, and {rows}")
        extra_ids = max(0, min(_SENTINELS_OF_BYT5, sizes.vocab_size - _BYTE_IDS))
        return Tokenizer((_config(folder, "ByT5Tokenizer", extra_ids),))
    if vocabulary is None or vocabulary.path is None:
        why = settings.doubt or "no config names a vocabulary"
        return Tokenizer(left_out=(f"the tokenizer: {why}; {_HOW}",))
    content = _content(vocabulary.path)
    if content is None:
        if required:
            raise ConversionError(f"the vocabulary {vocabulary.path} cannot be read from here: name a copy of it")
        return Tokenizer(left_out=(f"the tokenizer: {vocabulary.path} cannot be read from here; copy it, and {_HOW}",))
    return _of_pieces(folder, sizes, vocabulary, content)


def _of_pieces(folder: Path, sizes: Architecture, vocabulary: Vocabulary, content: bytes) -> Tokenizer:
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2 as protos

    model = protos.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise ConversionError(f"{vocabulary} is not a SentencePiece model") from None
    own = 0
    while own < len(model.pieces) and model.pieces[-1 - own].piece.lstrip("\u2581").startswith(_SENTINEL):
        own += 1
    total = len(model.pieces) + vocabulary.extra_ids
    if total > sizes.vocab_size:
        raise ConversionError(
            f"the vocabulary {vocabulary} has {total} ids, and the embedding {sizes.vocab_size} rows: it is that of "
            "another model"
        )
    warnings = []
    if own and vocabulary.extra_ids:
        warnings.append(
            f"{vocabulary} has {own} sentinels, and SeqIO adds {vocabulary.extra_ids}: the tokenizer has the latter"
        )
    elif own:  # transformers itself adds sentinels, with the same ids
        del model.pieces[len(model.pieces) - own :]
    if model.trainer_spec.byte_fallback:
        warnings.append(
            "what has no piece becomes bytes in SeqIO, and <unk> in the T5Tokenizer of transformers, which has none"
        )
    if not model.normalizer_spec.remove_extra_whitespaces:
        warnings.append("this vocabulary keeps spaces in a row, and the T5Tokenizer of transformers makes them one")
    file = folder / PIECES
    file.write_bytes(model.SerializeToString(deterministic=True) if own and not vocabulary.extra_ids else content)
    config = _config(folder, "T5Tokenizer", vocabulary.extra_ids or own)
    return Tokenizer((file, config), warnings=tuple(warnings))


def _content(path: str) -> bytes | None:
    """Returns a file's content, or None if the file cannot be read from here."""
    local = local_path(path)
    if local is None and is_unreachable(path):
        return None
    try:
        content: bytes = epath.Path(local or path).read_bytes()
    except OSError:
        return None
    return content


def _config(folder: Path, tokenizer_class: str, extra_ids: int) -> Path:
    sentinels = [f"{_SENTINEL}{index}>" for index in range(extra_ids)]
    value = {"additional_special_tokens": sentinels, "extra_ids": extra_ids, "tokenizer_class": tokenizer_class}
    _write_json(folder / TOKENIZER_CONFIG, {**_SPECIAL, **value})
    return folder / TOKENIZER_CONFIG
