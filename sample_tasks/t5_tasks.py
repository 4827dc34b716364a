"""Stand-ins for tasks of ``t5.data.mixtures``, from the package ``t5``, under the names that T5X's example configs use.

Sources, vocabularies, features and metrics are named as in T5. The functions are those of the sample tasks.
"""

import functools
from collections.abc import Mapping

import seqio
import tensorflow as tf

from t5x_harness.sample_tasks import c4, metrics

_LANGUAGES: Mapping[str, str] = {"en": "English", "de": "German", "fr": "French"}
_WMT: Mapping[str, tuple[str, str]] = {
    "wmt_t2t_ende_v003": ("wmt_t2t_translate/de-en:1.0.0", "de"),
    "wmt14_enfr_v003": ("wmt14_translate/fr-en:1.0.0", "fr"),
    "wmt19_ende_v003": ("wmt19_translate/de-en:1.0.0", "de"),
}
"""The TFDS dataset of each task, and the language that English is translated into."""


def vocabulary() -> seqio.SentencePieceVocabulary:
    """Returns T5's English vocabulary as the package names it: a file without sentinels, and 100 extra ids."""
    return seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000/sentencepiece.model", extra_ids=100)


def as_translation(dataset: tf.data.Dataset, target: str) -> tf.data.Dataset:
    """Makes ``inputs`` of the English text with a prefix, and ``targets`` of its translation."""
    prefix = f"translate {_LANGUAGES['en']} to {_LANGUAGES[target]}: "
    return dataset.map(lambda pair: {"inputs": prefix + pair["en"], "targets": pair[target]})


def _add_translation(name: str, tfds_name: str, target: str) -> None:
    seqio.TaskRegistry.add(
        name,
        source=seqio.TfdsDataSource(tfds_name=tfds_name),
        preprocessors=[
            functools.partial(as_translation, target=target),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={
            "inputs": seqio.Feature(vocabulary(), add_eos=True, required=False),
            "targets": seqio.Feature(vocabulary(), add_eos=True),
        },
        metric_fns=[metrics.bleu],
    )


c4.add_task("c4_v220_span_corruption", "c4/en:2.2.0", vocabulary())
for _name, (_dataset, _target) in _WMT.items():
    _add_translation(_name, _dataset, _target)
