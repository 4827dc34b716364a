"""Fine-tuning, translation-like: numbers in words from German to English, scored by BLEU."""

from __future__ import annotations

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import metrics, numbers, vocabularies

_SPLITS = ("train", "validation")

# Every twentieth number is held out, so validation has words that training has in other combinations.
_HELD_OUT = 20

# From here on, nearly all numbers have at least four English words, which BLEU needs to count anything.
_FIRST = 1_000


def number_pairs(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """Returns the numbers of a split in English and German words, as string scalars ``english`` and ``german``.

    Args:
      split: ``train`` or ``validation``.
      shuffle_files: shuffles the order with ``seed``.
      seed: as SeqIO passes it.

    Raises:
      ValueError: there is no such split; SeqIO passes a part such as ``train[:8]`` to a function unchanged.
    """
    if split not in _SPLITS:
        raise ValueError(f"there is no split {split!r}, only {' and '.join(map(repr, _SPLITS))}, and no parts of them")
    held_out = split == "validation"
    values = [n for n in range(_FIRST, numbers.LIMIT, 7) if (n % _HELD_OUT == 0) is held_out]
    pairs = tf.data.Dataset.from_tensor_slices(
        {"english": [numbers.english(n) for n in values], "german": [numbers.german(n) for n in values]}
    )
    return pairs.shuffle(len(values), seed=seed) if shuffle_files else pairs


def as_translation(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prefixes the source text as T5 does."""
    return dataset.map(
        lambda pair: {"inputs": "translate German to English: " + pair["german"], "targets": pair["english"]}
    )


seqio.TaskRegistry.add(
    "sample_translate",
    source=seqio.FunctionDataSource(number_pairs, splits=_SPLITS),
    preprocessors=[
        as_translation,
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={
        "inputs": seqio.Feature(vocabularies.sentencepiece(), add_eos=True),
        "targets": seqio.Feature(vocabularies.sentencepiece(), add_eos=True),
    },
    metric_fns=[metrics.bleu],
)
