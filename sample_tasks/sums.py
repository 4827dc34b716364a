"""A custom TFDS builder, and the task that reads what it prepared.

The prepared data ships in ``data/tfds``; ``make_data.py`` makes it anew by this builder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

from t5x_harness.sample_tasks import metrics, vocabularies
from t5x_harness.sample_tasks.rivers import DATA

TFDS_FOLDER = DATA / "tfds"


class SampleSums(tfds.core.GeneratorBasedBuilder):
    """Sums of two whole numbers below 100."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Sums of two whole numbers below 100.",
            features=tfds.features.FeaturesDict({"left": tf.int64, "right": tf.int64, "sum": tf.int64}),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        del dl_manager  # nothing to download
        return {"train": self._generate_examples(0, 400), "validation": self._generate_examples(400, 440)}

    def _generate_examples(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, int]]]:
        for key in range(start, stop):
            left, right = key * 31 % 100, key * 53 % 97
            yield key, {"left": left, "right": right, "sum": left + right}


def as_text(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes ``left + right`` the inputs and the sum the targets, in decimal digits."""
    return dataset.map(
        lambda e: {
            "inputs": tf.strings.join(
                ["add: ", tf.strings.as_string(e["left"]), " ", tf.strings.as_string(e["right"])]
            ),
            "targets": tf.strings.as_string(e["sum"]),
        }
    )


seqio.TaskRegistry.add(
    "sample_sums",
    source=seqio.TfdsDataSource("sample_sums:1.0.0", tfds_data_dir=str(TFDS_FOLDER)),
    preprocessors=[as_text, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
    output_features={
        "inputs": seqio.Feature(vocabularies.byte(), add_eos=True),
        "targets": seqio.Feature(vocabularies.byte(), add_eos=True),
    },
    metric_fns=[metrics.accuracy],
)
