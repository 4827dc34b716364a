"""The task of the campaign: sums of two numbers, as text."""

import functools

import numpy as np
import seqio
import tensorflow as tf

NUMBERS = {"train": range(0, 24), "validation": range(24, 32)}
VOCABULARY = seqio.ByteVocabulary()


def rows(split, shuffle_files=False, seed=None):  # noqa: ARG001 - SeqIO gives all three
    """Returns the examples of a split: a question, and its answer."""
    numbers = [*NUMBERS[split]]
    questions = [f"{n} + {n + 7}" for n in numbers]
    return tf.data.Dataset.from_tensor_slices({"question": questions, "answer": [str(2 * n + 7) for n in numbers]})


@seqio.map_over_dataset
def with_prefix(example, prefix="add: "):
    """Puts what is to be done in front of the question."""
    return {"inputs": tf.strings.join([prefix, example["question"]]), "targets": example["answer"]}


def strip(text, example=None, is_target=False):  # noqa: ARG001 - SeqIO gives all three
    """Returns an answer without spaces around it."""
    return text.strip()


def accuracy(targets, predictions):
    """Returns the share of right answers, in percent."""
    return {"accuracy": 100.0 * np.mean([target == found for target, found in zip(targets, predictions, strict=True)])}


seqio.TaskRegistry.add(
    "sums",
    source=seqio.FunctionDataSource(rows, splits=("train", "validation")),
    preprocessors=[
        functools.partial(with_prefix, prefix="add: "),
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos,
    ],
    output_features={
        "inputs": seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
        "targets": seqio.Feature(vocabulary=VOCABULARY, add_eos=True),
    },
    postprocess_fn=strip,
    metric_fns=[accuracy],
)
