"""Fine-tuning, extractive question answering from TFExample records, scored as SQuAD is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import metrics, vocabularies
from t5x_harness.sample_tasks.rivers import DATA

FEATURES = {
    "question": tf.io.FixedLenFeature([], tf.string),
    "context": tf.io.FixedLenFeature([], tf.string),
    "answers": tf.io.RaggedFeature(tf.string),
}


def as_question(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Joins question and context to the input; the first answer is the target, and the metric gets all of them."""
    return dataset.map(
        lambda e: {
            "inputs": tf.strings.join(["question: ", e["question"], " context: ", e["context"]]),
            "targets": e["answers"][0],
            "answers": e["answers"],
        }
    )


def answers_or_text(text: str, example: Mapping[str, Any], is_target: bool = False) -> str | list[str]:
    """Returns all accepted answers for a target, and the text itself for a prediction."""
    return [tf.compat.as_text(answer) for answer in example["answers"]] if is_target else text


seqio.TaskRegistry.add(
    "sample_answer",
    source=seqio.TFExampleDataSource(
        {split: str(DATA / f"rivers-{split}.tfrecord") for split in ("train", "validation")},
        feature_description=FEATURES,
    ),
    preprocessors=[as_question, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
    output_features={
        "inputs": seqio.Feature(vocabularies.sentencepiece(), add_eos=True),
        "targets": seqio.Feature(vocabularies.sentencepiece(), add_eos=True),
    },
    postprocess_fn=answers_or_text,
    metric_fns=[metrics.squad],
)
