"""The sentinels of span corruption: ids from the top of the vocabulary that mark where spans were cut out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import seqio
from sentencepiece import sentencepiece_model_pb2

from t5x_harness.resolve.samples import Sample

_LEAST_EXAMPLES = 0.8
"""The share of examples that must look corrupted; ordinary text may also contain the highest id."""

_OF_TEXT = (
    sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL,
    sentencepiece_model_pb2.ModelProto.SentencePiece.BYTE,
)
_BYTES_FROM = 3
"""The id of byte 0, after padding, end of sequence and unknown."""

_OF_UTF8 = frozenset(range(0xF5)) - {0xC0, 0xC1}


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of a vocabulary: its id and text."""

    id: int
    text: str


def sentinels_of(sample: Sample) -> int:
    """Returns how many sentinels the most corrupted example has; 0 if the examples are not corrupted spans.

    The i-th sentinel is the i-th id from the top, and marks the same place in inputs and targets.
    """
    feature = sample.task.output_features.get("targets")
    top = (feature.vocabulary.vocab_size if feature else 0) or 0
    found = [
        _sentinels(example["inputs"], example["targets"], top)
        for example in sample.examples
        if all(name in example and np.ndim(example[name]) == 1 for name in ("inputs", "targets"))
    ]
    corrupted = sum(number > 0 for number in found)
    return max(found) if found and corrupted >= _LEAST_EXAMPLES * len(found) else 0


def _sentinels(inputs: np.ndarray, targets: np.ndarray, top: int) -> int:
    """Counts the sentinels that are in both texts, each once and in order."""
    number = 0
    places = (-1, -1)
    while True:
        here = tuple(np.flatnonzero(text == top - 1 - number) for text in (inputs, targets))
        if any(len(place) != 1 for place in here):
            return number
        if any(place[0] <= before for place, before in zip(here, places, strict=True)):
            return number
        places = (int(here[0][0]), int(here[1][0]))
        number += 1


def overwritten_piece(vocabulary: seqio.Vocabulary, sentinels: int) -> Piece | None:
    """Returns the first sentinel that is also a piece of text, or None if none is or the vocabulary does not tell."""
    if isinstance(vocabulary, seqio.ByteVocabulary):
        piece_of: Callable[[int], Piece | None] = _byte
    elif isinstance(vocabulary, seqio.SentencePieceVocabulary):
        pieces = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model).pieces
        piece_of = functools.partial(_text_piece, pieces)
    else:
        return None
    top = vocabulary.vocab_size - 1
    return next(filter(None, map(piece_of, range(top, top - sentinels, -1))), None)


def _byte(index: int) -> Piece | None:
    """Returns the byte of an id if UTF-8 uses it; ByT5 takes its few sentinels from bytes that UTF-8 does not use."""
    byte = index - _BYTES_FROM
    return Piece(index, f"0x{byte:02X}") if byte in _OF_UTF8 else None


def _text_piece(pieces: Sequence[sentencepiece_model_pb2.ModelProto.SentencePiece], index: int) -> Piece | None:
    """Returns the piece of an id if text is made of it; extra ids have a kind or a name of their own."""
    piece = pieces[index]
    if piece.type not in _OF_TEXT or "extra_id" in piece.piece:
        return None
    return Piece(index, piece.piece)
