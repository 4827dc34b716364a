"""Generated SentencePiece vocabularies of the size that a path and a model imply.

A config names its vocabulary by a path in a bucket, such as ``gs://t5-data/vocabs/cc_all.32000.100extra/…``.  The
stand-in has as many pieces as the file at that path, the same special ids as T5's public vocabularies, and a byte for
everything that has no piece: every text comes back as it was when its ids are decoded (in TensorFlow without spaces in
front, as its decoder drops them of every model).  Its ids are not those of the real file.

Two paths of T5's that differ only in where the sentinels come from, the file (``….100extra``) or ``extra_ids=100``,
have the same stand-in once SeqIO has added its extra ids, byte for byte, as the real files have.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re

from t5x_harness.standins.pieces import letters, pieces

EOS_ID = 1
PAD_ID = 0
UNK_ID = 2

_PUBLISHED = re.compile(r"(?:gs://|/gcs/)t5-data/vocabs/")
"""T5's public vocabularies, whose paths tell their sizes."""

_DEFAULT_PIECES = 32_000
"""Of T5's English vocabulary: for a path and a model that say nothing."""

_NUMBER_OF_BYTES = 256

_LEAST_WITH_BYTES = 384
"""Vocabularies smaller than this have letters instead of bytes: with both, hardly a piece would be left."""

_SENTINELS = re.compile(r"\.(\d+)extra\b")
_NUMBER = re.compile(r"(?<!\d)\d{3,7}(?!\d)")
_THOUSANDS = re.compile(r"(?<!\d)(\d{1,3})k(?![a-z\d])", re.IGNORECASE)
_BUCKET = re.compile(r"^(?:\w+://|/gcs/)[^/]*/")


@dataclasses.dataclass(frozen=True)
class VocabularySize:
    """How many ids a SentencePiece file has.

    Attributes:
      pieces: ids without sentinels, with padding, end of sequence and unknown.
      sentinels: ``<extra_id_…>`` pieces that the file itself has at its end.
    """

    pieces: int
    sentinels: int = 0

    @property
    def total(self) -> int:
        """All ids of the file."""
        return self.pieces + self.sentinels


def size_of(path: str, *, rows: int | None = None, extra_ids: int = 0) -> VocabularySize:
    """Returns the size of the vocabulary that a path names.

    Args:
      path: of the SentencePiece file. A number in it says how large the file is, as in ``cc_all.32000.100extra`` or
        ``my_vocab_64k``; the file's name counts more than its folder's, and the bucket's not at all.
      rows: rows of the model's embedding, which T5's models round up to a multiple of 128; None if that is not known.
        They decide where the path says nothing.
      extra_ids: what SeqIO adds to the file's ids.
    """
    for part in reversed(_BUCKET.sub("", path).split("/")):
        sentinels = int(found[1]) if (found := _SENTINELS.search(part)) else 0
        name = _SENTINELS.sub("", part)
        if numbers := [n for n in map(int, _NUMBER.findall(name)) if _is_a_size(n)]:
            return VocabularySize(numbers[-1], sentinels)
        if thousands := _THOUSANDS.search(name):
            return VocabularySize(_of_thousands(int(thousands[1]), rows, extra_ids + sentinels), sentinels)
    if rows is None or rows <= extra_ids:
        return VocabularySize(_DEFAULT_PIECES)
    left = rows - extra_ids
    return VocabularySize(left - left % 100 if left > _LEAST_WITH_BYTES else left)


def is_published(path: str) -> bool:
    """Returns whether a path is that of one of T5's public vocabularies, of which :func:`size_of` is certain."""
    return _PUBLISHED.match(path) is not None


def _is_a_size(number: int) -> bool:
    """Returns whether a number is one that vocabularies are trained to, and no date or version."""
    return number >= _LEAST_WITH_BYTES and (number % 100 == 0 or number.bit_count() == 1)


def _of_thousands(number: int, rows: int | None, others: int) -> int:
    """Returns what ``64k`` means: 65,536 where the embedding is too large for 64,000 and has room for them."""
    binary, decimal = number * 1024, number * 1000
    return binary if rows is not None and decimal + others + 128 <= rows >= binary + others else decimal


@functools.lru_cache(maxsize=8)
def model_of(size: VocabularySize) -> bytes:
    """Returns a SentencePiece unigram model, serialized; the same bytes for the same size.

    Ids 0, 1 and 2 are padding, end of sequence and unknown, sentinels the last ids in falling order. From 384 pieces
    on it has a piece for each byte; smaller ones have letters only, and other characters become unknown.

    Args:
      size: its size.

    Raises:
      ValueError: there is no room for the three special ids.
    """
    from sentencepiece import sentencepiece_model_pb2 as protos

    if size.pieces < UNK_ID + 1:
        raise ValueError(f"a vocabulary of {size.pieces} pieces has no room for padding, end of sequence and unknown")
    kinds = protos.ModelProto.SentencePiece
    model = protos.ModelProto()
    add = model.pieces.add
    for piece, kind in (("<pad>", kinds.CONTROL), ("</s>", kinds.CONTROL), ("<unk>", kinds.UNKNOWN)):
        add(piece=piece, score=0.0, type=kind)
    with_bytes = size.pieces >= _LEAST_WITH_BYTES
    for byte in range(_NUMBER_OF_BYTES if with_bytes else 0):
        add(piece=f"<0x{byte:02X}>", score=0.0, type=kinds.BYTE)
    for piece, score in _scored(size.pieces - len(model.pieces)):
        add(piece=piece, score=score)
    for sentinel in reversed(range(size.sentinels)):  # as SeqIO adds them
        add(piece=f"\u2581<extra_id_{sentinel}>", score=0.0, type=kinds.USER_DEFINED)
    trainer = model.trainer_spec
    trainer.model_type = protos.TrainerSpec.UNIGRAM
    trainer.pad_id, trainer.eos_id, trainer.unk_id, trainer.bos_id = PAD_ID, EOS_ID, UNK_ID, -1
    trainer.byte_fallback = with_bytes
    normalizer = model.normalizer_spec
    normalizer.name = "identity"  # whatever a normalizer joins or drops could not come back
    normalizer.add_dummy_prefix = True
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def _scored(number: int) -> list[tuple[str, float]]:
    """Pieces with their log probabilities, which all differ: what a text is cut into is never a matter of chance.

    A piece costs more the later it comes, but no two pieces cost less than the one that they make up.
    """
    single = list(itertools.islice(letters(), min(number, max(100, number // 4))))
    chosen = dict.fromkeys(single)
    longer = pieces()
    while len(chosen) < number:
        chosen[next(longer)] = None
    return [(piece, -8.0 - 4.0 * rank / number) for rank, piece in enumerate(chosen)]
