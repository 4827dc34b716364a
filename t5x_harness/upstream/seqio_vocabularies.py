"""What tells a vocabulary from others."""

from __future__ import annotations

import inspect

import seqio
import tensorflow as tf

__all__ = ["describe_vocabulary", "vocabulary_file", "vocabulary_size"]


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int | None:
    """How many ids a vocabulary has, with extra ids; None where it does not say, or its file cannot be read here."""
    try:
        size: int | None = vocabulary.vocab_size
    except (tf.errors.OpError, OSError, NotImplementedError):
        return None
    return size


def describe_vocabulary(vocabulary: seqio.Vocabulary) -> str:
    """A vocabulary by what tells it from others: kind, file, size, extra ids."""
    size = vocabulary_size(vocabulary)
    parts = [f"{size} ids" if size is not None else "of unknown size"]
    extra = getattr(vocabulary, "extra_ids", 0)
    if extra:
        parts.append(f"{extra} extra")
    if file := vocabulary_file(vocabulary):
        parts.append(file)
    return f"{type(vocabulary).__name__} ({', '.join(parts)})"


def vocabulary_file(vocabulary: seqio.Vocabulary) -> str | None:
    """The file that a vocabulary is read from; None where it has none."""
    for name in ("sentencepiece_model_file", "_sentencepiece_model_file", "vocab_file"):
        file = inspect.getattr_static(vocabulary, name, None) or vars(vocabulary).get(name)
        if isinstance(file, str):
            return file
    return None
