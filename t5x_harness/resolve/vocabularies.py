"""A vocabulary in words: what tells it from others."""

from __future__ import annotations

import seqio
import tensorflow as tf

from t5x_harness.upstream.seqio import vocabulary_file


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int | None:
    """Returns how many ids a vocabulary has, with extra ids; None where neither it nor a file here says so."""
    try:
        size: int | None = vocabulary.vocab_size
    except (tf.errors.OpError, OSError, NotImplementedError):
        return None
    return size


def describe_vocabulary(vocabulary: seqio.Vocabulary) -> str:
    """Describes a vocabulary by what tells it from others: kind, file, size, extra ids."""
    size = vocabulary_size(vocabulary)
    parts = [f"{size} ids" if size is not None else "of unknown size"]
    extra = getattr(vocabulary, "extra_ids", 0)
    if extra:
        parts.append(f"{extra} extra")
    if file := vocabulary_file(vocabulary):
        parts.append(file)
    return f"{type(vocabulary).__name__} ({', '.join(parts)})"
