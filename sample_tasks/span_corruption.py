"""Pretraining on a text file with one document per line and with spans masked by sentinels."""

from collections.abc import Mapping

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import vocabularies
from t5x_harness.sample_tasks.rivers import DATA

NOISE_DENSITY = 0.15
MEAN_SPAN_LENGTH = 3.0


def span_corruption(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int],
    output_features: Mapping[str, seqio.Feature],
) -> tf.data.Dataset:
    """Masks random spans of ``targets``: the spans become ``targets``, the rest becomes ``inputs``.

    A document is first cut to ``sequence_length["inputs"]`` tokens. The i-th span is marked in both of them by the i-th
    id from the top of the vocabulary, so the vocabulary needs as many extra ids as a document has spans.

    Args:
      dataset: examples with int32 ``targets`` of shape (length,).
      sequence_length: the length limits of the run, which SeqIO passes in.
      output_features: the features of the task, which SeqIO passes in.
    """
    limit = sequence_length["inputs"]
    cut = dataset.map(lambda example: {"targets": example["targets"][:limit]})
    return mask_spans(cut, output_features["targets"].vocabulary)


def mask_spans(dataset: tf.data.Dataset, vocabulary: seqio.Vocabulary) -> tf.data.Dataset:
    """Masks random spans of uncut ``targets``; targets of a single token are dropped.

    Args:
      dataset: examples with int32 ``targets`` of shape (length,).
      vocabulary: the vocabulary, whose highest ids are the sentinels.
    """

    @seqio.map_over_dataset(num_seeds=1)
    def corrupt(example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> Mapping[str, tf.Tensor]:
        tokens = example["targets"]
        length = tf.size(tokens)
        noise = tf.clip_by_value(_rounded(length, NOISE_DENSITY), 1, length - 1)
        spans = tf.clip_by_value(_rounded(noise, 1 / MEAN_SPAN_LENGTH), 1, tf.minimum(noise, length - noise))
        seeds = tf.random.experimental.stateless_split(seed, 2)
        kept_lengths = _random_parts(length - noise, spans, seeds[0])
        noise_lengths = _random_parts(noise, spans, seeds[1])
        lengths = tf.reshape(tf.stack([kept_lengths, noise_lengths], axis=1), [-1])
        pieces = tf.RaggedTensor.from_row_lengths(tokens, lengths)
        sentinels = tf.RaggedTensor.from_row_lengths(
            vocabulary.vocab_size - 1 - tf.range(spans), tf.ones_like(kept_lengths)
        )
        return {
            "inputs": tf.concat([pieces[0::2], sentinels], axis=1).values,
            "targets": tf.concat([sentinels, pieces[1::2]], axis=1).values,
        }

    return corrupt(dataset.filter(lambda example: tf.size(example["targets"]) > 1))


def _rounded(count: tf.Tensor, share: float) -> tf.Tensor:
    return tf.cast(tf.round(tf.cast(count, tf.float32) * share), tf.int32)


def _random_parts(total: tf.Tensor, parts: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns random lengths of ``parts`` pieces, each at least 1, that add up to ``total``; all are equally likely."""
    cuts = tf.random.experimental.stateless_shuffle(tf.range(1, total), seed)[: parts - 1]
    edges = tf.concat([[0], tf.sort(cuts), [total]], axis=0)
    return edges[1:] - edges[:-1]


seqio.TaskRegistry.add(
    "sample_span_corruption",
    source=seqio.TextLineDataSource({split: str(DATA / f"rivers-{split}.txt") for split in ("train", "validation")}),
    preprocessors=[
        lambda dataset: dataset.map(lambda line: {"targets": line}),
        seqio.preprocessors.tokenize,
        span_corruption,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features=vocabularies.features(vocabularies.sentencepiece()),
)
