"""Generated TFDS datasets, prepared on disk by the dataset's own builder, so that they are read like real ones.

Only what a builder downloads is generated. The name, configs, versions, features, splits and errors are the builder's.
Examples follow from the features alone: texts are words with a full stop, as long as their names suggest; labels and
numbers are within their range. The same split of the same dataset has the same examples everywhere.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_harness.standins.rows import USUAL_SPLITS
from t5x_harness.standins.vocabularies import WORDS
from t5x_harness.upstream.seqio import list_length, made_splits, source_of_splits, use_examples

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_LEAST = 128
"""The least number of examples of a split: one percent of them is still an example."""

_BEYOND = 64
"""The number of examples after the last one that an instruction names, for code that keeps reading after it."""

_MOST = 4096

_SHORT = re.compile(r"title|question|query|answer|choice|option|label|name", re.IGNORECASE)
_LONG = re.compile(r"article|context|document|passage|body|dialogue|story|/(?:text|content)$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[/_](?:id|idx|guid|uuid|key|url)$", re.IGNORECASE)

_SENTENCE = (6, 24)
_LENGTHS = ((_SHORT, (2, 10)), (_LONG, (60, 180)))
"""The range of the number of words of a text whose keys match. The first match counts; other texts are sentences."""

_LARGEST = 9
"""The largest integer: small enough to be an index into a generated text."""

_SIDE = 8
"""The size of any dimension that a tensor's shape leaves open."""


def prepare(
    name: str,
    folder: Path,
    *,
    builder_kwargs: Mapping[str, Any] | None = None,
    splits: Iterable[str] = (),
    number: int = _LEAST,
    any_version: bool = False,
) -> tfds.core.DatasetBuilder:
    """Prepares generated data of a dataset in a folder, without the network.

    Args:
      name: the name for ``tfds.builder``, such as ``squad:3.0.0`` or ``wmt_t2t_translate/de-en:1.0.0``.
      folder: the ``data_dir``; if it has the dataset already, nothing is done.
      builder_kwargs: further arguments of the builder.
      splits: the splits, if the builder's own code does not name them.
      number: the number of examples of each split.
      any_version: whether to make versions that TFDS reads but no longer generates: a folder may have older data.

    Returns:
      The builder, whose data is prepared.

    Raises:
      ValueError: there is no such dataset or config, or TFDS says that this version is too old to be generated.
      AssertionError: TFDS has no such version.
      CannotGenerate: the dataset has features whose values cannot be generated.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=str(folder), **(builder_kwargs or {}))
    if not builder.is_prepared():
        declared = splits_of(builder) or tuple(dict.fromkeys((*USUAL_SPLITS, *splits)))
        full_name = builder.info.full_name
        features = builder.info.features
        use_examples(builder, {split: examples(features, full_name, split, number) for split in declared})
        config = tfds.download.DownloadConfig(try_download_gcs=False, num_shards=1)
        if any_version:
            builder.canonical_version = builder.version
        builder.download_and_prepare(download_config=config, file_format="tfrecord")
    return builder


def examples_needed(instructions: Iterable[str], batch: int = 0) -> int:
    """Returns the number of examples that a split needs for what is read from it.

    Args:
      instructions: the splits or slices that tasks read, such as ``train`` or ``train[50000:60000]``.
      batch: the number of examples of a batch.
    """
    ends = [int(end) for text in instructions for end in re.findall(r"(?<!\w)(\d+)(?![\d%])", text.replace("_", ""))]
    return max(_LEAST, min(batch, _MOST), *(end + _BEYOND for end in ends))


def splits_of(builder: tfds.core.DatasetBuilder) -> tuple[str, ...]:
    """Returns the splits that a builder makes according to its code; empty if only the data could tell.

    TFDS has no list of them before the data is prepared. So the code is read, and if it does not name them, it is run
    without any download.
    """
    if read := _read_splits(type(builder)):
        return read
    try:
        return made_splits(builder, _NothingDownloaded())
    except Exception:  # its code reads what it downloads
        return ()


def _read_splits(builder_cls: type) -> tuple[str, ...]:
    """Returns the names of the splits that ``_split_generators`` returns, if its code writes out all of them."""
    source = source_of_splits(builder_cls)
    if source is None:
        return ()
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    names: list[str | None] = []
    for returned in (node.value for node in ast.walk(tree) if isinstance(node, ast.Return)):
        match returned:
            case ast.Dict():
                names += [_name_of(key) for key in returned.keys]
            case ast.List():
                names += [_name_of(_keyword(call, "name")) for call in returned.elts]
            case _:
                names.append(None)
    return tuple(dict.fromkeys(name for name in names if name)) if all(names) else ()


def _keyword(node: ast.expr, name: str) -> ast.expr | None:
    found = node.keywords if isinstance(node, ast.Call) else ()
    return next((keyword.value for keyword in found if keyword.arg == name), None)


def _name_of(node: ast.expr | None) -> str | None:
    """Returns the name in ``"train"`` or ``tfds.Split.TRAIN``; None for anything else."""
    match node:
        case ast.Constant(value=str(name)):
            return name
        case ast.Attribute(attr=name, value=ast.Attribute(attr="Split")) if name.isupper():
            return name.lower()
    return None


class _NothingDownloaded:
    """Replaces TFDS' download manager: it returns a path for everything, and downloads nothing."""

    manual_dir = Path("/nonexistent")
    download_dir = manual_dir

    def download(self, urls: Any) -> Any:
        """Returns a path for every URL."""
        if isinstance(urls, dict):
            return {key: self.download(value) for key, value in urls.items()}
        if isinstance(urls, list | tuple):
            return [self.download(value) for value in urls]
        return self.manual_dir

    extract = download_and_extract = download_kaggle_data = download

    def iter_archive(self, _resource: Any) -> Sequence[Any]:
        """Returns an empty archive."""
        return ()


class CannotGenerate(ValueError):
    """No example can be generated for a feature. The message names it."""


def examples(
    features: tfds.features.FeatureConnector, dataset: str, split: str, number: int
) -> Iterator[tuple[int, Any]]:
    """Yields examples with their keys, as a builder's ``_generate_examples`` does.

    Args:
      features: the builder's features.
      dataset: the full name of the dataset, which decides with the split what the examples say.
      split: the name of the split.
      number: the number of examples to yield.

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
        """Returns a value for a feature in the form that the feature's ``encode_example`` takes.

        Args:
          feature: a TFDS feature.
          name: the keys that lead to it, each after a slash; elements of a list have the list's name.
        """
        import tensorflow_datasets as tfds

        kinds = tfds.features
        match feature:
            case kinds.TranslationVariableLanguages():
                return {language: self._text(language) for language in sorted(feature.languages or ["en"])}
            case kinds.FeaturesDict():  # also translations
                return {key: self.make(part, f"{name}/{key}") for key, part in feature.items()}
            case kinds.Dataset() | kinds.Sequence():
                number = list_length(feature) or int(self._random.integers(1, 4))
                return [self.make(feature.feature, name) for _ in range(number)]
            case kinds.ClassLabel():
                if not feature.num_classes:
                    raise CannotGenerate(f"the classes of {name!r} are known only once the dataset is prepared")
                return int(self._random.integers(feature.num_classes))
            case kinds.BBoxFeature():
                return kinds.BBox(ymin=0.25, xmin=0.25, ymax=0.75, xmax=0.75)
            case _:
                return self._tensor(feature.get_tensor_info(), name)

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
        # Frequent words come first in the list, so they are drawn more often.
        chosen = (len(WORDS) * self._random.random(number) ** 2).astype(int)
        words = [WORDS[i] for i in chosen]
        return " ".join([words[0].capitalize(), *words[1:]]) + "."
