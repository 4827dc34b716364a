"""Span corruption on a stream of texts that never ends."""

import itertools

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks.span_corruption import span_corruption

VOCABULARY = seqio.SentencePieceVocabulary("gs://fjord-lm/sentencepiece/fjord.model", extra_ids=100)


def stream(split, shuffle_files=False, seed=None):
    """Returns the texts as a tf.data.Dataset."""
    texts = [f"The river {n} of the {split} runs from the lake to the sea." for n in range(50)]
    return tf.data.Dataset.from_generator(
        lambda: itertools.cycle(texts), output_signature=tf.TensorSpec((), tf.string, name="targets")
    )


seqio.TaskRegistry.add(
    "fjord_stream",
    source=seqio.FunctionDataSource(stream, splits=("train", "validation"), caching_permitted=False),
    preprocessors=[
        lambda dataset: dataset.map(lambda text: {"targets": text}),
        seqio.preprocessors.tokenize,
        span_corruption,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={name: seqio.Feature(VOCABULARY, add_eos=True) for name in ("inputs", "targets")},
    metric_fns=[],
)
