"""Captions as lines of text and as TFExamples in a bucket, in several languages."""

import functools

import seqio
import tensorflow as tf

BUCKET = "gs://polyglot-data/captions"
MT5 = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/mc4.250000.100extra/sentencepiece.model")
BYTES = seqio.ByteVocabulary()

seqio.add_global_cache_dirs(["gs://polyglot-data/cached_tasks"])


def features(vocabulary):
    """Returns inputs and targets with the same vocabulary."""
    return {name: seqio.Feature(vocabulary, add_eos=True) for name in ("inputs", "targets")}


@seqio.map_over_dataset
def split_columns(line, prefix):
    """Splits a line of the form ``english<tab>translation``."""
    english, translation = tf.io.decode_csv(line, ["", ""], field_delim="\t", use_quote_delim=False)
    return {"inputs": tf.strings.join([prefix, english]), "targets": translation}


def token_accuracy(targets, predictions):
    """Returns the percentage of predictions that equal their target."""
    return {"exact": 100 * sum(map(str.__eq__, targets, predictions)) / len(targets)}


for language in ("de", "fr"):
    seqio.TaskRegistry.add(
        f"captions_{language}",
        source=seqio.TextLineDataSource(
            {split: f"{BUCKET}/{language}/{split}.tsv" for split in ("train", "validation")},
            num_input_examples={"train": 29_000, "validation": 1_014},
        ),
        preprocessors=[
            functools.partial(split_columns, prefix=f"caption in {language}: "),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features(MT5),
        metric_fns=[token_accuracy],
    )

by_size = functools.partial(seqio.mixing_rate_num_examples, maximum=5_000)
seqio.MixtureRegistry.add("captions", [("captions_de", 3_000), ("captions_fr", by_size)])
seqio.MixtureRegistry.add("captions_equal", ["captions_de", "captions_fr"], default_rate=1.0)

seqio.TaskRegistry.add(
    "captions_bytes",
    source=seqio.TFExampleDataSource(
        {"test": f"{BUCKET}/test.tfrecord-*"},
        feature_description={name: tf.io.FixedLenFeature([], tf.string) for name in ("inputs", "targets")},
    ),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
    output_features=features(BYTES),
)
