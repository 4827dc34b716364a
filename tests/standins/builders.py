"""TFDS builders for tests. None of their data can be downloaded."""

import tensorflow as tf
import tensorflow_datasets as tfds


class EveryFeature(tfds.core.GeneratorBasedBuilder):
    """Has features of every kind that text datasets have."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "id": tf.string,
            "question": tfds.features.Text(),
            "context": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=["no", "yes", "maybe"]),
            "pair": tfds.features.Translation(languages=("de", "en")),
            "answers": tfds.features.Sequence({"text": tf.string, "start": tf.int32}),
            "turns": tfds.features.Dataset({"text": tf.string, "score": tf.float32}),
            "three": tfds.features.Sequence(tf.int64, length=3),
            "table": tfds.features.Tensor(shape=(None, 2), dtype=tf.float32),
            "seen": tf.bool,
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        path = dl_manager.download_and_extract("https://example.com/data.zip")
        return {"train": self._generate_examples(path), tfds.Split.TEST: self._generate_examples(path)}

    def _generate_examples(self, _path):
        yield from ()


class SplitsByLanguage(EveryFeature):
    """Names its splits in a loop."""

    def _split_generators(self, dl_manager):
        paths = dl_manager.download({language: f"https://example.com/{language}" for language in ("de", "en")})
        return {f"train_{language}": self._generate_examples(path) for language, path in paths.items()}


class SplitsInTheData(EveryFeature):
    """Finds its splits in what it downloads."""

    def _split_generators(self, dl_manager):
        names = dl_manager.download("https://example.com/splits.txt").read_text().split()
        return {name: self._generate_examples(name) for name in names}


class TwoVersions(EveryFeature):
    """Reads version 1.0.0, and generates only 2.0.0."""

    VERSION = tfds.core.Version("2.0.0")
    SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0")]  # noqa: RUF012 (TFDS adds it to a list)


class ClassesInTheData(EveryFeature):
    """Has a label whose classes are not known before the data exists."""

    def _info(self):
        features = tfds.features.FeaturesDict({"label": tfds.features.ClassLabel()})
        return tfds.core.DatasetInfo(builder=self, features=features)
