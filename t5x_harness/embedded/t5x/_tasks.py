"""Finds tasks and mixtures by name, and reports those that cannot be read here."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging
from t5x._errors import with_hint
from t5x._lazy import clu_data, seqio, tf

if TYPE_CHECKING:
    from t5x.utils import DatasetConfig


def is_airio(value: object) -> bool:
    """Returns whether a value belongs to AirIO, without importing AirIO."""
    return any(cls.__module__.partition(".")[0] == "airio" for cls in type(value).__mro__)


def get_provider(cfg: DatasetConfig) -> seqio.Task | seqio.Mixture:
    """Finds the task or mixture that a config names.

    Raises:
        ValueError: no task or mixture has that name, or it is AirIO's.
        TypeError: it is neither a name nor a task or mixture.
    """
    named = cfg.mixture_or_task_name
    if isinstance(named, seqio.DatasetProviderBase):
        return named
    if is_airio(named):
        raise ValueError(
            f"{type(named).__module__}.{type(named).__qualname__} belongs to AirIO, which T5X's get_dataset does not "
            "read: bind train.get_dataset_fn to a function that returns an airio.core.AirIODatasetIterator, or name a "
            "SeqIO task."
        )
    if not isinstance(named, str):
        raise TypeError(
            "`DatasetConfig.mixture_or_task_name` must be the name of a registered task or mixture, or one itself; "
            f"got {named!r}."
        )
    known = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    if named not in known:
        raise ValueError(_unknown_name(named, known))
    return seqio.get_mixture_or_task(named)


def _unknown_name(name: str, known: set[str]) -> str:
    what = f"No Task or Mixture found with name {name!r}"
    fix = "import the module that registers it in the Gin file, or name the module in MIXTURE_OR_TASK_MODULE"
    if not known:
        return f"{what}: none is registered; {fix}."
    close = difflib.get_close_matches(name, sorted(map(str, known)), n=3)
    if close:
        return f"{what}; did you mean {' or '.join(map(repr, close))}? ({len(known)} are registered.) Otherwise {fix}."
    return f"{what}, nor one of a similar name among the {len(known)} that are registered; {fix}."


def warn_of_airio_settings(cfg: DatasetConfig) -> None:
    """Logs the settings of ``cfg`` that SeqIO does not use."""
    defaults = {field.name: field.default for field in dataclasses.fields(cfg)}
    for name in ("runtime_preprocessors", "num_prefetch_threads", "num_workers"):
        if getattr(cfg, name) != defaults[name]:
            logging.warning("`DatasetConfig.%s` only concerns AirIO sources; it is ignored for a SeqIO one.", name)


def as_clu_iterator(
    batches: tf.data.Dataset | clu_data.dataset_iterator.DatasetIterator,
) -> clu_data.dataset_iterator.DatasetIterator:
    """Returns the result of a ``get_dataset_fn`` as an iterator with clu's interface."""
    if isinstance(batches, tf.data.Dataset):
        return clu_data.dataset_iterator.TfDatasetIterator(batches, checkpoint=True)
    if not isinstance(batches, clu_data.dataset_iterator.DatasetIterator):
        raise ValueError(
            f"get_dataset_fn returned unsupported type {type(batches)}. It must return a tf.data.Dataset or a clu "
            "DatasetIterator."
        )
    return batches


def check_batch_size(batch_size: int, num_shards: int) -> None:
    rest = batch_size % num_shards
    if rest:
        nearest = " or ".join(str(size) for size in (batch_size - rest, batch_size - rest + num_shards) if size)
        raise with_hint(
            ValueError(f"Batch size ({batch_size}) must be divisible by number of shards ({num_shards})."),
            f"The nearest that is: {nearest}.",
        )


@contextlib.contextmanager
def explaining(cfg: DatasetConfig, provider: seqio.Task | seqio.Mixture) -> Iterator[None]:
    """Names the wrong setting of ``cfg`` in cases in which SeqIO and data sources only show its consequence."""
    try:
        yield
    except AssertionError as error:
        if not (cfg.use_cached and "cache directories" in str(error)):
            raise
        folders = ", ".join(map(str, seqio.get_global_cache_dirs())) or "none are set"
        raise AssertionError(
            f"{str(error).rstrip('.')} (searched: {folders}). Set `use_cached` to False (USE_CACHED_TASKS in most "
            "configs), or run seqio_cache_tasks and name its output folder: seqio.add_global_cache_dirs(['FOLDER']), "
            "or for t5x.train --seqio_additional_cache_dirs."
        ) from error
    except (LookupError, ValueError, TypeError, OSError, tf.errors.OpError) as error:
        splits = declared_splits(provider, error)
        if splits is None or cfg.split in splits:
            raise
        known = ", ".join(map(repr, sorted(splits)))
        raise ValueError(
            f"{provider.name!r} has no split {cfg.split!r}, which `DatasetConfig.split` asks for; it has {known}."
        ) from error


def declared_splits(provider: seqio.Task | seqio.Mixture, error: Exception) -> Sequence[str] | None:
    """Returns the splits that a provider has, or None if only reading can tell.

    TFDS understands slices ('train[:5%]') and names the right splits itself, unless the task declares a mapping: then a
    wrong name is a KeyError.
    """
    tasks = seqio.get_subtasks(provider)
    if any(isinstance(task.source, seqio.TfdsDataSource) for task in tasks) and not isinstance(error, KeyError):
        return None
    return sorted({split for task in tasks for split in task.splits})
