"""A streaming source, such as a queue or a remote file: its length is unknown, and it is read once and in order."""

from __future__ import annotations

from collections.abc import Iterator

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import metrics, vocabularies

_LENGTHS = {"train": 4096, "validation": 32}


def counting_stream(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """Streams countdowns such as ``count from 12`` and ``12 11 10 9``, made while they are read.

    Args:
      split: ``train`` or ``validation``.
      shuffle_files: ignored; a stream has one order.
      seed: ignored, for the same reason.

    Raises:
      ValueError: it is neither; SeqIO hands a part such as ``train[:8]`` to a function as it is.
    """
    del shuffle_files, seed
    if split not in _LENGTHS:
        raise ValueError(f"there is no split {split!r}, only {' and '.join(map(repr, _LENGTHS))}, and no parts of them")

    def examples() -> Iterator[dict[str, str]]:
        for i in range(_LENGTHS[split]):
            start = 3 + i * 37 % 96
            yield {"inputs": f"count from {start}", "targets": " ".join(str(start - k) for k in range(4))}

    text = tf.TensorSpec([], tf.string)
    return tf.data.Dataset.from_generator(examples, output_signature={"inputs": text, "targets": text})


seqio.TaskRegistry.add(
    "sample_stream",
    source=seqio.FunctionDataSource(counting_stream, splits=tuple(_LENGTHS)),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
    output_features={
        "inputs": seqio.Feature(vocabularies.byte(), add_eos=True),
        "targets": seqio.Feature(vocabularies.byte(), add_eos=True),
    },
    metric_fns=[metrics.accuracy],
)
