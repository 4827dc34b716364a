"""Registers every sample task and mixture: the one module that a Gin file imports."""

from collections.abc import Iterator, Mapping
from typing import Any

import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

# The first two are imported because they register tasks.
from t5x_harness.sample_tasks import c4, metrics, numbers, span_corruption, vocabularies  # noqa: F401
from t5x_harness.sample_tasks.rivers import DATA
from t5x_harness.sample_tasks.vocabularies import features

_TO_IDS = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim]
_SPLITS = ("train", "validation")


def _check_split(split: str) -> None:
    """Refuses splits that a function cannot read: SeqIO passes a slice such as ``train[:8]`` to it unchanged."""
    if split not in _SPLITS:
        raise ValueError(f"there is no split {split!r}, only {' and '.join(map(repr, _SPLITS))}, and no parts of them")


# Fine-tuning on classification from a TSV file: is a number written in English or in German?

LABELS = ("english", "german")


def parse_tsv(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes ``inputs`` and ``targets`` from lines ``text<tab>label``."""

    def parse(line: tf.Tensor) -> dict[str, tf.Tensor]:
        text, label = tf.io.decode_csv(line, record_defaults=["", ""], field_delim="\t", use_quote_delim=False)
        return {"inputs": "language: " + text, "targets": label}

    return dataset.map(parse)


def label_index(text: str, **_: object) -> int:
    """Returns the position of a label in ``LABELS``, or -1 for any other text; targets are never -1."""
    return LABELS.index(text) if text in LABELS else -1


seqio.TaskRegistry.add(
    "sample_classify",
    source=seqio.TextLineDataSource({split: str(DATA / f"languages-{split}.tsv") for split in _SPLITS}),
    preprocessors=[parse_tsv, *_TO_IDS],
    output_features=features(vocabularies.byte()),
    postprocess_fn=label_index,
    metric_fns=[metrics.accuracy],
)

# Fine-tuning on extractive question answering from TFExample records, scored like SQuAD.

QUESTION_FEATURES = {
    "question": tf.io.FixedLenFeature([], tf.string),
    "context": tf.io.FixedLenFeature([], tf.string),
    "answers": tf.io.RaggedFeature(tf.string),
}


def as_question(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Joins question and context into the input. The first answer is the target, and the metric gets all answers."""
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
        {split: str(DATA / f"rivers-{split}.tfrecord") for split in _SPLITS}, feature_description=QUESTION_FEATURES
    ),
    preprocessors=[as_question, *_TO_IDS],
    output_features=features(vocabularies.sentencepiece()),
    postprocess_fn=answers_or_text,
    metric_fns=[metrics.squad],
)

# Fine-tuning that resembles translation: numbers in words from German to English, scored by BLEU.

# Every twentieth number is held out, so validation has the words of training in other combinations.
_HELD_OUT = 20

# From here on, nearly all numbers have at least four English words: BLEU is zero for shorter texts.
_FIRST = 1_000


def number_pairs(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """Returns the numbers of a split in English and German words, as string scalars ``english`` and ``german``.

    Args:
      split: ``train`` or ``validation``.
      shuffle_files: whether to shuffle the order with ``seed``.
      seed: the seed that SeqIO passes.

    Raises:
      ValueError: there is no such split.
    """
    _check_split(split)
    held_out = split == "validation"
    values = [n for n in range(_FIRST, numbers.LIMIT, 7) if (n % _HELD_OUT == 0) is held_out]
    pairs = tf.data.Dataset.from_tensor_slices(
        {"english": [numbers.english(n) for n in values], "german": [numbers.german(n) for n in values]}
    )
    return pairs.shuffle(len(values), seed=seed) if shuffle_files else pairs


def as_translation(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Adds a prefix to the source text, as T5 does."""
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
    output_features=features(vocabularies.sentencepiece()),
    metric_fns=[metrics.bleu],
)

# A streaming source like a queue or a remote file: its length is unknown, and it is read once and in order.


def counting_stream(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """Streams countdowns such as ``count from 12`` and ``12 11 10 9``, generated as they are read.

    Args:
      split: ``train`` or ``validation``.
      shuffle_files: ignored, because a stream has one order.
      seed: ignored, for the same reason.

    Raises:
      ValueError: there is no such split.
    """
    del shuffle_files, seed
    _check_split(split)

    def examples() -> Iterator[dict[str, str]]:
        for i in range(4096 if split == "train" else 32):
            start = 3 + i * 37 % 96
            yield {"inputs": f"count from {start}", "targets": " ".join(str(start - k) for k in range(4))}

    text = tf.TensorSpec([], tf.string)
    return tf.data.Dataset.from_generator(examples, output_signature={"inputs": text, "targets": text})


seqio.TaskRegistry.add(
    "sample_stream",
    source=seqio.FunctionDataSource(counting_stream, splits=_SPLITS),
    preprocessors=_TO_IDS,
    output_features=features(vocabularies.byte()),
    metric_fns=[metrics.accuracy],
)

# A custom TFDS builder, and the task that reads its prepared data: data/tfds, which make_data.py regenerates.


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


def as_sum(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes ``inputs`` of ``left + right`` and ``targets`` of the sum, in decimal digits."""
    digits = tf.strings.as_string
    return dataset.map(
        lambda e: {
            "inputs": tf.strings.join(["add: ", digits(e["left"]), " ", digits(e["right"])]),
            "targets": digits(e["sum"]),
        }
    )


seqio.TaskRegistry.add(
    "sample_sums",
    source=seqio.TfdsDataSource("sample_sums:1.0.0", tfds_data_dir=str(DATA / "tfds")),
    preprocessors=[as_sum, *_TO_IDS],
    output_features=features(vocabularies.byte()),
    metric_fns=[metrics.accuracy],
)

seqio.MixtureRegistry.add("sample_mixture", [("sample_translate", 3.0), ("sample_answer", 1.0)])
