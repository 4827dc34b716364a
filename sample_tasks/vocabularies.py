"""The two vocabularies of the sample tasks."""

from __future__ import annotations

import seqio

from t5x_harness.sample_tasks.rivers import DATA

SENTENCEPIECE_MODEL = str(DATA / "sentencepiece.model")


def sentencepiece() -> seqio.SentencePieceVocabulary:
    """512 pieces with byte fallback, and 100 extra ids above them for the sentinels of span corruption: 612 ids."""
    return seqio.SentencePieceVocabulary(SENTENCEPIECE_MODEL, extra_ids=100)


def byte() -> seqio.ByteVocabulary:
    """256 bytes behind three special ids, and 125 extra ids: 384, a multiple of 128."""
    return seqio.ByteVocabulary()
