"""Fine-tuning, classification from a TSV file: is a number written in English or in German?"""

from __future__ import annotations

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import metrics, vocabularies
from t5x_harness.sample_tasks.rivers import DATA

LABELS = ("english", "german")


def parse_tsv(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes ``inputs`` and ``targets`` of lines ``text<tab>label``."""

    def parse(line: tf.Tensor) -> dict[str, tf.Tensor]:
        text, label = tf.io.decode_csv(line, record_defaults=["", ""], field_delim="\t", use_quote_delim=False)
        return {"inputs": "language: " + text, "targets": label}

    return dataset.map(parse)


def label_index(text: str, **_: object) -> int:
    """Returns the position of a label in ``LABELS``, or -1 for any other text, which no target has."""
    return LABELS.index(text) if text in LABELS else -1


seqio.TaskRegistry.add(
    "sample_classify",
    source=seqio.TextLineDataSource(
        {split: str(DATA / f"languages-{split}.tsv") for split in ("train", "validation")},
    ),
    preprocessors=[
        parse_tsv,
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={
        "inputs": seqio.Feature(vocabularies.byte(), add_eos=True),
        "targets": seqio.Feature(vocabularies.byte(), add_eos=True),
    },
    postprocess_fn=label_index,
    metric_fns=[metrics.accuracy],
)
