"""Private names of SeqIO and of TensorFlow Datasets, which they may change in any release; each is used only here."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import seqio
import tensorflow as tf

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


def metric_functions(task: seqio.Task) -> Sequence[Callable[..., Any]]:
    """Returns the metric functions that a task was defined with."""
    return task._metric_fn_constructor_args


def metric_objects(task: seqio.Task) -> Sequence[Any]:
    """Returns the metric objects that a task was defined with."""
    return task._metric_objs_constructor_args


def preprocessors(task: seqio.Task) -> Sequence[Callable[..., Any]]:
    """Returns the preprocessors that a task was defined with; the public property wraps them."""
    return task._preprocessor_constructor_args


def preprocess(
    task: seqio.Task, dataset: tf.data.Dataset, steps: Sequence[Any], lengths: Mapping[str, int] | None
) -> tf.data.Dataset:
    """Applies some of a task's preprocessors to examples."""
    return task._preprocess_dataset(dataset, steps, lengths)


def replace_source(task: seqio.Task, source: seqio.DataSourceInterface) -> None:
    """Makes a task read from another source."""
    task._source = source


def cached_examples_from(task: seqio.Task, source: Callable[[], seqio.DataSourceInterface]) -> None:
    """Makes a task read from a source instead of its cache."""
    # SeqIO calls these two only if use_cached is set; the second one is for a line in the log.
    task._get_cached_source = lambda split=None: source()
    task.get_cached_stats = lambda split="train": {"examples": 0}


def split_patterns(source: seqio.FileDataSource, split: str) -> tuple[str, ...]:
    """Returns the file patterns of a split; empty for a split that the source does not have."""
    found = source._split_to_filepattern.get(split, ())
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def function_of(source: seqio.DataSourceInterface) -> Callable[..., Any] | None:
    """Returns the function that makes a source's examples; None for a source without one."""
    return getattr(source, "_dataset_fn", None)


def declared_sizes(source: seqio.DataSourceInterface) -> Mapping[str, int] | None:
    """Returns the numbers of examples by split that a source was defined with."""
    return getattr(source, "_num_input_examples", None)


def tfds_splits(source: seqio.TfdsDataSource) -> Sequence[str]:
    """Returns the splits that a source was defined with, without asking TFDS; empty if it uses those of TFDS."""
    return tuple(source._splits or ())


def tfds_instructions(source: seqio.TfdsDataSource) -> list[str]:
    """Returns the TFDS split that each split of a source reads, such as ``train[:90%]``."""
    return [source.tfds_dataset._map_split(split) or split for split in tfds_splits(source)]


def replace_splits(loader: Any, splits: Mapping[str, Any]) -> None:
    """Makes SeqIO's loader of a TFDS dataset read other splits."""
    loader._split_map = dict(splits)


def builder_of(loader: Any, split: str) -> Any:
    """Returns the TFDS builder that reads a split."""
    return loader._get_builder(split)


def builder_kwargs(loader: Any) -> Mapping[str, Any]:
    """Returns the additional arguments of a loader's builders."""
    return dict(loader._builder_kwargs or {})


def weights_of(mixture: seqio.Mixture) -> Mapping[str, Any]:
    """Returns the rate of each task that a mixture was defined with, by name: a number or a function."""
    return mixture._task_to_rate


def vocabulary_file(vocabulary: seqio.Vocabulary) -> str | None:
    """Returns the file that a vocabulary is read from; None if it has no file."""
    for name in ("sentencepiece_model_file", "_sentencepiece_model_file", "vocab_file"):
        file = inspect.getattr_static(vocabulary, name, None) or vars(vocabulary).get(name)
        if isinstance(file, str):
            return file
    return None


def open_vocabulary_files(file_for: Callable[[str, int], str]) -> None:
    """Makes SeqIO open other SentencePiece files in this process; a later call replaces an earlier one.

    Args:
      file_for: returns the file to open for a path and a number of extra ids.
    """
    from seqio import vocabularies  # which SeqIO, while it is imported, does not have as an attribute yet

    load = getattr(vocabularies._load_model, "in_place_of", vocabularies._load_model)

    def load_model(sentencepiece_model_file: str, extra_ids: int, *args: Any, **options: Any) -> Any:
        return load(file_for(sentencepiece_model_file, extra_ids), extra_ids, *args, **options)

    load_model.in_place_of = load  # type: ignore[attr-defined]
    vocabularies._load_model = load_model


def watch_registrations(on_register: Callable[[str, FrameType, Callable[[], None]], None]) -> None:
    """Makes SeqIO call a function instead of registering a task or mixture; a later call replaces an earlier one.

    Args:
      on_register: takes the name, the frame that registers the name, and a function that does so.
    """
    registry: Any = seqio.dataset_providers.DatasetProviderRegistry
    current = registry.add_provider.__func__
    register = getattr(current, "in_place_of", current)

    def add_provider(owner: Any, name: str, provider: Any) -> None:
        on_register(name, sys._getframe(1), lambda: register(owner, name, provider))

    add_provider.in_place_of = register  # type: ignore[attr-defined]
    registry.add_provider = classmethod(add_provider)


def cached_source(folder: str, split: str) -> seqio.FileDataSource:
    """Returns SeqIO's own source for a split in a task's cache folder, complete or not."""
    from seqio.dataset_providers import _CachedDataSource

    return _CachedDataSource(folder, split)


def forget_cache(task: seqio.Task) -> None:
    """Makes a task look for its cache and read its statistics again."""
    task._cache_dir = None
    task._stats = {}


def use_examples(builder: tfds.core.DatasetBuilder, splits: Mapping[str, Iterable[Any]]) -> None:
    """Makes a builder prepare given examples, without logging downloads.

    Args:
      builder: the builder to change.
      splits: keys and examples by split.
    """
    builder._split_generators = lambda dl_manager: dict(splits)
    builder._log_download_bytes = builder._log_download_done = lambda: None


def source_of_splits(builder_cls: type) -> str | None:
    """Returns the source of the method in which a builder names its splits; None if it cannot be read."""
    try:
        return textwrap.dedent(inspect.getsource(builder_cls._split_generators))  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return None


def made_splits(builder: tfds.core.DatasetBuilder, download_manager: Any) -> tuple[str, ...]:
    """Returns the splits that a builder makes with a download manager; errors of the builder's code pass through."""
    arguments: dict[str, Any] = {"dl_manager": download_manager}
    if "pipeline" in inspect.signature(builder._split_generators).parameters:
        arguments["pipeline"] = None
    made = builder._split_generators(**arguments)
    return tuple(str(name) for name in (made if isinstance(made, dict) else (each.name for each in made)))


def list_length(feature: Any) -> int | None:
    """Returns the fixed length of a feature that is a list; None for any length."""
    return getattr(feature, "_length", None)
