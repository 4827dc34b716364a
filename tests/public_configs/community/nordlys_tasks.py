"""Span corruption on a stream from the Hugging Face Hub."""

import functools

import seqio
import tensorflow as tf
from datasets import load_dataset

WEB = {"path": "nordlys/web-no", "streaming": True}
VOCABULARY = seqio.SentencePieceVocabulary("gs://nordlys-lm/sentencepiece/nordlys_64k.model", extra_ids=100)
WINDOW, SPAN = 20, 3  # one masked span of 3 tokens in 20


def texts(split, shuffle, seed, dataset):
    """Yields the texts of a split, over and over."""
    rows = load_dataset(**dataset)[split]
    if shuffle:
        rows = rows.shuffle(seed=seed, buffer_size=10_000)
    while True:
        for row in rows:
            yield row["text"]


def stream(split, shuffle_files=False, seed=None, dataset=None):
    """Returns the texts as a tf.data.Dataset."""
    return tf.data.Dataset.from_generator(
        functools.partial(texts, split, shuffle_files, seed, dataset),
        output_signature=tf.TensorSpec(shape=(), dtype=tf.string, name=dataset["path"]),
    )


@seqio.map_over_dataset
def as_targets(text):
    """Returns a text under the name of the feature that it becomes."""
    return {"targets": text}


def mask_spans(dataset, sequence_length, output_features):
    """Moves one span of each window to the targets, and puts a sentinel in its place."""
    first = output_features["targets"].vocabulary.vocab_size - 1
    most = sequence_length["inputs"] // (WINDOW - SPAN + 1)

    @seqio.map_over_dataset(num_seeds=1)
    def mask(example, seed):
        windows = tf.minimum(tf.size(example["targets"]) // WINDOW, most)
        tokens = tf.reshape(example["targets"][: windows * WINDOW], [windows, WINDOW])
        sentinels = first - tf.range(windows)[:, None]
        start = tf.random.stateless_uniform([], seed, 0, WINDOW - SPAN, tf.int32)
        kept = [tokens[:, :start], sentinels, tokens[:, start + SPAN :]]
        masked = [sentinels, tokens[:, start : start + SPAN]]
        return {name: tf.reshape(tf.concat(parts, 1), [-1]) for name, parts in (("inputs", kept), ("targets", masked))}

    return mask(dataset.filter(lambda example: tf.size(example["targets"]) >= WINDOW))


seqio.TaskRegistry.add(
    "nordlys_stream",
    source=seqio.FunctionDataSource(
        functools.partial(stream, dataset=WEB), splits=("train", "validation"), caching_permitted=False
    ),
    preprocessors=[as_targets, seqio.preprocessors.tokenize, mask_spans, seqio.preprocessors.append_eos_after_trim],
    output_features={name: seqio.Feature(VOCABULARY, add_eos=True) for name in ("inputs", "targets")},
    metric_fns=[],
)
