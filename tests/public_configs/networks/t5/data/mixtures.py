"""A task of the package t5: WMT 2014, English to German, from TFDS."""

import functools

import seqio
import tensorflow as tf

VOCABULARY = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")


@seqio.map_over_dataset
def translate(example, source, target):
    """Puts the names of the languages before the sentence."""
    return {"inputs": tf.strings.join([f"translate {source} to {target}: ", example["en"]]), "targets": example["de"]}


def exact(targets, predictions):
    """Returns the percentage of predictions that equal their target."""
    return {"exact": 100 * sum(map(str.__eq__, targets, predictions)) / len(targets)}


seqio.TaskRegistry.add(
    "wmt_t2t_ende_v003",
    source=seqio.TfdsDataSource("wmt_t2t_translate/de-en:1.0.0"),
    preprocessors=[
        functools.partial(translate, source="English", target="German"),
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={name: seqio.Feature(VOCABULARY) for name in ("inputs", "targets")},
    metric_fns=[exact],
)
