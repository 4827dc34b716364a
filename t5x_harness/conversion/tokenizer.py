"""Writes the tokenizer of a folder of transformers: a SentencePiece model, or bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etils import epath

from t5x_harness.buckets.emulated import local_path
from t5x_harness.buckets.reach import is_unreachable
from t5x_harness.conversion.architecture import Architecture
from t5x_harness.conversion.errors import ConversionError
from t5x_harness.conversion.flavors import Flavor
from t5x_harness.conversion.settings import ModelSettings, Vocabulary

TOKENIZER_CONFIG, PIECES = "tokenizer_config.json", "spiece.model"

_BYTE_IDS = 259  # 256 bytes after padding, end of sequence and unknown
_SENTINELS_OF_BYT5 = 125
_SENTINEL = "<extra_id_"
_SPECIAL = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
_HOW = "give it with --vocabulary=PATH or --vocabulary=bytes"


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A tokenizer that was written, or was left out.

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
      required: whether the user named the vocabulary, so that it is an error if it cannot be read.

    Raises:
      ConversionError: the vocabulary does not fit the embedding, is not a SentencePiece model, or is required and
        cannot be read.
    """
    vocabulary = settings.vocabulary
    if flavor.has_bytes:
        return _of_bytes(folder, sizes, vocabulary)
    if vocabulary is None or vocabulary.path is None:
        why = settings.doubt or "no config names a vocabulary"
        return Tokenizer(left_out=(f"the tokenizer: {why}; {_HOW}",))
    content = _content(vocabulary.path)
    if content is None:
        if required:
            raise ConversionError(f"the vocabulary {vocabulary.path} cannot be read from here: name a copy of it")
        return Tokenizer(left_out=(f"the tokenizer: {vocabulary.path} cannot be read from here; copy it, and {_HOW}",))
    return _of_pieces(folder, sizes, vocabulary, content)


def _of_bytes(folder: Path, sizes: Architecture, vocabulary: Vocabulary | None) -> Tokenizer:
    extra_ids = max(0, min(_SENTINELS_OF_BYT5, sizes.vocab_size - _BYTE_IDS))
    if sizes.vocab_size < _BYTE_IDS + (vocabulary.extra_ids if vocabulary else 0):
        raise ConversionError(f"the vocabulary of bytes has {_BYTE_IDS} ids, and the embedding {sizes.vocab_size} rows")
    return Tokenizer((_config(folder, "ByT5Tokenizer", extra_ids),))


def _of_pieces(folder: Path, sizes: Architecture, vocabulary: Vocabulary, content: bytes) -> Tokenizer:
    model = _parsed(vocabulary, content)
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
    elif own:  # transformers adds sentinels itself, at the ids that these have
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


def _parsed(vocabulary: Vocabulary, content: bytes) -> Any:
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2 as protos

    model = protos.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise ConversionError(f"{vocabulary} is not a SentencePiece model") from None
    return model


def _content(path: str) -> bytes | None:
    """Returns a file's content, or None if it cannot be read from here."""
    local = local_path(path)
    if local is None and is_unreachable(path):
        return None
    try:
        content: bytes = epath.Path(local or path).read_bytes()
    except OSError:
        return None
    return content


def _config(folder: Path, tokenizer_class: str, extra_ids: int) -> Path:
    value: Mapping[str, Any] = {
        **_SPECIAL,
        "additional_special_tokens": [f"{_SENTINEL}{index}>" for index in range(extra_ids)],
        "extra_ids": extra_ids,
        "tokenizer_class": tokenizer_class,
    }
    file = folder / TOKENIZER_CONFIG
    file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file
