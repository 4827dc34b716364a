"""Generated examples of a TFDS dataset, from its feature specification alone.

Texts are words with a full stop, as long as their names suggest; labels and numbers are within their range.  The same
split of the same dataset has the same examples everywhere.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_harness.standins.pieces import WORDS
from t5x_harness.upstream.tfds import list_length

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_SHORT = re.compile(r"title|question|query|answer|choice|option|label|name", re.IGNORECASE)
_LONG = re.compile(r"article|context|document|passage|body|dialogue|story|/(?:text|content)$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[/_](?:id|idx|guid|uuid|key|url)$", re.IGNORECASE)

_SENTENCE = (6, 24)
_LENGTHS = ((_SHORT, (2, 10)), (_LONG, (60, 180)))
"""How many words a text has, by what its keys contain; the first match counts, else it is a sentence."""

_LARGEST = 9
"""The largest integer: small enough to be an index into a generated text."""

_SIDE = 8
"""The size of a dimension that a tensor's shape leaves open."""


class CannotGenerate(ValueError):
    """No example can be generated for a feature; the message names it."""


def examples(
    features: tfds.features.FeatureConnector, dataset: str, split: str, number: int
) -> Iterator[tuple[int, Any]]:
    """Yields examples with their keys, as a builder's ``_generate_examples`` does.

    Args:
      features: the builder's features.
      dataset: the full name of the dataset; it and the split decide what the examples say.
      split: the name of the split.
      number: how many examples to yield.

    Raises:
      CannotGenerate: there is a feature whose values cannot be generated.
    """
    for index in range(number):
        seed = zlib.crc32(f"{dataset} {split} {index}".encode())
        yield index, _Maker(np.random.default_rng(seed), index).make(features, "")


class _Maker:
    """Generates the values of one example."""

    def __init__(self, random: np.random.Generator, index: int) -> None:
        self._random = random
        self._index = index

    def make(self, feature: Any, name: str) -> Any:
        """Returns a value for a feature, in the form that the feature's ``encode_example`` takes.

        Args:
          feature: a TFDS feature.
          name: the keys that lead to it, each after a slash; elements of a list have the list's name.
        """
        import tensorflow_datasets as tfds

        kinds = tfds.features
        match feature:
            case kinds.TranslationVariableLanguages():
                return {language: self._text(language) for language in sorted(feature.languages or ["en"])}
            case kinds.FeaturesDict():  # translations, too
                return {key: self.make(part, f"{name}/{key}") for key, part in feature.items()}
            case kinds.Dataset() | kinds.Sequence():
                return [self.make(feature.feature, name) for _ in range(self._length(feature))]
            case kinds.ClassLabel():
                if not feature.num_classes:
                    raise CannotGenerate(f"the classes of {name!r} are known only once the dataset is prepared")
                return int(self._random.integers(feature.num_classes))
            case kinds.BBoxFeature():
                return kinds.BBox(ymin=0.25, xmin=0.25, ymax=0.75, xmax=0.75)
            case _:
                return self._tensor(feature.get_tensor_info(), name)

    def _length(self, feature: Any) -> int:
        """Returns how many elements a list has: its fixed length, or a few."""
        return list_length(feature) or int(self._random.integers(1, 4))

    def _tensor(self, info: Any, name: str) -> Any:
        """Returns a value of a tensor's shape and dtype.

        Raises:
          CannotGenerate: the feature consists of several tensors, or has a dtype that cannot be generated.
        """
        if isinstance(info, dict):
            raise CannotGenerate(f"{name!r} is made of several tensors")
        shape = tuple(_SIDE if size is None else size for size in info.shape)
        dtype = np.dtype(info.np_dtype) if info.np_dtype is not str else np.dtype(object)
        if dtype.kind in "iu":
            return self._random.integers(_LARGEST + 1, size=shape).astype(dtype)
        if dtype.kind == "f" or dtype.name == "bfloat16":
            return self._random.random(shape).astype(dtype)
        if dtype.kind == "b":
            return self._random.random(shape) < 0.5
        if dtype.kind in "OSU":
            if not shape:
                return self._text(name)
            texts = [self._text(name) for _ in range(int(np.prod(shape)))]
            return np.array(texts, dtype=object).reshape(shape)
        raise CannotGenerate(f"{name!r} has the dtype {dtype}")

    def _text(self, name: str) -> str:
        """Returns words for a text feature of this name."""
        if _IDENTIFIER.search(name):
            return f"generated-{self._index}"
        least, most = next((length for pattern, length in _LENGTHS if pattern.search(name)), _SENTENCE)
        number = self._random.integers(least, most + 1)
        # Frequent words come first in the list, and more often here.
        chosen = (len(WORDS) * self._random.random(number) ** 2).astype(int)
        words = [WORDS[i] for i in chosen]
        return " ".join([words[0].capitalize(), *words[1:]]) + "."
