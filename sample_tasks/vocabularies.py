"""The two vocabularies of the sample tasks, and features that use them."""

import seqio

from t5x_harness.sample_tasks.rivers import DATA

SENTENCEPIECE_MODEL = str(DATA / "sentencepiece.model")


def sentencepiece() -> seqio.SentencePieceVocabulary:
    """Returns a vocabulary of 612 ids: 512 pieces with byte fallback, and 100 extra ids for the sentinels of spans."""
    return seqio.SentencePieceVocabulary(SENTENCEPIECE_MODEL, extra_ids=100)


def byte() -> seqio.ByteVocabulary:
    """Returns a vocabulary of 384 ids, a multiple of 128: three special ids, 256 bytes and 125 extra ids."""
    return seqio.ByteVocabulary()


def features(vocabulary: seqio.Vocabulary) -> dict[str, seqio.Feature]:
    """Returns the features ``inputs`` and ``targets`` of a vocabulary, each with an end of sequence."""
    return {name: seqio.Feature(vocabulary, add_eos=True) for name in ("inputs", "targets")}
