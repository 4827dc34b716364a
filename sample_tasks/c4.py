"""Pretraining as for T5 itself, on web pages of C4 that are cut into chunks of equal length, with masked spans.

The data is TFDS' ``c4``, which takes days to prepare. If it is not prepared, a run generates a few pages.
"""

from collections.abc import Mapping

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import span_corruption

PIECES = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
"""T5's English vocabulary, which T5X's model configs name."""


def chunk_length(inputs: int) -> int:
    """Returns the number of tokens that become ``inputs`` ids once spans are masked and the end of sequence is added.

    Of 568 tokens, 512 ids remain, and the masked tokens become 114 ids of targets.

    Args:
      inputs: the length limit of the inputs, at least 3.
    """
    length = 2
    while _masked_length(length + 1) <= inputs:
        length += 1
    return length


def _masked_length(tokens: int) -> int:
    noise = max(round(tokens * span_corruption.NOISE_DENSITY), 1)
    spans = max(round(noise / span_corruption.MEAN_SPAN_LENGTH), 1)
    return tokens - noise + spans + 1


def corrupt_chunks(
    dataset: tf.data.Dataset,
    sequence_length: Mapping[str, int],
    output_features: Mapping[str, seqio.Feature],
) -> tf.data.Dataset:
    """Joins pages, cuts them into chunks, and masks spans of each chunk.

    Args:
      dataset: examples with int32 ``targets`` of shape (length,).
      sequence_length: the length limits of the run, which SeqIO passes in.
      output_features: the features of the task, which SeqIO passes in.
    """
    length = chunk_length(sequence_length["inputs"])
    chunks = dataset.map(lambda page: {"targets": page["targets"]}).rebatch(length)
    return span_corruption.mask_spans(chunks, output_features["targets"].vocabulary)


def add_task(name: str, tfds_name: str, vocabulary: seqio.Vocabulary) -> None:
    """Registers span corruption on a version of C4."""
    seqio.TaskRegistry.add(
        name,
        source=seqio.TfdsDataSource(tfds_name=tfds_name),
        preprocessors=[
            lambda dataset: dataset.map(lambda page: {"targets": page["text"]}),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            corrupt_chunks,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={
            "inputs": seqio.Feature(vocabulary, add_eos=True, required=False),
            "targets": seqio.Feature(vocabulary, add_eos=True),
        },
    )


add_task("sample_c4", "c4/en:3.1.0", seqio.SentencePieceVocabulary(PIECES))
