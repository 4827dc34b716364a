"""Reading the data: one shard of a dataset for training or inference, and the datasets of training evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence

import clu.data
import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging
from jax.experimental import multihost_utils
from t5x._utils.callables import FeatureConverterFactory
from t5x._utils.dataset_config import DatasetConfig, get_provider, import_module, warn_of_airio_settings
from t5x._utils.multihost import multihost_assert_equal


def get_dataset(
    cfg: DatasetConfig,
    shard_id: int,
    num_shards: int,
    feature_converter_cls: FeatureConverterFactory,
    num_epochs: int | None = None,
    continue_from_last_checkpoint: bool = False,
) -> tf.data.Dataset | clu.data.dataset_iterator.DatasetIterator:
    """Reads one shard of a dataset.

    Args:
        cfg: What to read.
        shard_id: Which shard, from 0.
        num_shards: How many shards the hosts read between them.
        feature_converter_cls: Makes the converter from task features to model features.
        num_epochs: How often to go through the data; None goes on for ever.
        continue_from_last_checkpoint: Must be False: only deterministic pipelines can.

    Returns:
        Batches of ``cfg.batch_size / num_shards`` examples: int32 arrays by feature, of shape (batch, length).

    Raises:
        ValueError: The batch can't be shared out evenly, or the task or its split does not exist.
        AssertionError: The offline cache is asked for and there is none.
    """
    if continue_from_last_checkpoint:
        raise ValueError(
            "`continue_from_last_checkpoint` must be False: `t5x.utils.get_dataset` can't start in the middle of a "
            "dataset. Bind a `get_dataset_fn` that can."
        )
    if cfg.module:
        import_module(cfg.module)
    _check_batch_size(cfg.batch_size, num_shards)
    seed = cfg.seed
    if seed is None:
        now = np.int32(time.time())
        seed = int(multihost_utils.broadcast_one_to_all(now))
    shard_info = seqio.ShardInfo(index=shard_id, num_shards=num_shards)
    return get_dataset_inner(cfg, shard_info, feature_converter_cls, seed, num_epochs)


def get_dataset_inner(
    cfg: DatasetConfig,
    shard_info: seqio.ShardInfo,
    feature_converter_cls: FeatureConverterFactory,
    seed: int | None = None,
    num_epochs: int | None = None,
) -> tf.data.Dataset:
    """Reads one shard of a dataset, its module imported and its seed settled.

    Args:
        cfg: What to read; its own seed is not used.
        shard_info: Which shard of how many.
        feature_converter_cls: Makes the converter from task features to model features.
        seed: For shuffling and random preprocessors; must be the same on every host.
        num_epochs: How often to go through the data; None goes on for ever.

    Returns:
        See :func:`get_dataset`.

    Raises:
        ValueError: The task or its split does not exist.
        AssertionError: The offline cache is asked for and there is none; or the seeds of the hosts differ.
    """
    provider = get_provider(cfg)
    warn_of_airio_settings(cfg)
    shard_batch_size = cfg.batch_size // shard_info.num_shards
    if seed is not None:
        multihost_assert_equal(
            np.array(seed),
            f"The hosts would shuffle {provider.name!r} differently: process {jax.process_index()} has seed {seed}.",
        )
    logging.info(
        "Reading %r, split %r: %d examples a batch and shard, seed %s.",
        provider.name,
        cfg.split,
        shard_batch_size,
        seed,
    )
    with _explaining(cfg, provider):
        return seqio.get_dataset(
            mixture_or_task_name=provider,
            task_feature_lengths=cfg.task_feature_lengths,
            feature_converter=feature_converter_cls(pack=cfg.pack, use_custom_packing_ops=cfg.use_custom_packing_ops),
            dataset_split=cfg.split,
            use_cached=cfg.use_cached,
            shuffle=cfg.shuffle,
            num_epochs=num_epochs,
            shard_info=shard_info,
            seed=seed,
            batch_size=shard_batch_size,
            trim_output_features=cfg.trim_output_features,
        )


def get_training_eval_datasets(
    cfg: DatasetConfig,
    shard_id: int,
    num_shards: int,
    eval_steps: int,
    feature_converter_cls: FeatureConverterFactory,
    deterministic: bool = False,
    model_dir: str | None = None,
    start_step: int = 0,
) -> Mapping[str, tf.data.Dataset]:
    """Reads what training evaluation sees: each task alone, and a mixture as a whole too.

    Every dataset is exactly ``eval_steps`` batches long; a small split repeats. Tasks without the split are left out.

    Args:
        cfg: What to read.
        shard_id: Which shard, from 0.
        num_shards: How many shards the hosts read between them.
        eval_steps: Batches in each dataset.
        feature_converter_cls: Makes the converter from task features to model features.
        deterministic: Must be False: deterministic pipelines are not part of T5X's public release.
        model_dir: Only for deterministic pipelines.
        start_step: Only for deterministic pipelines.

    Returns:
        Datasets of batches by the name of the task or mixture.

    Raises:
        ValueError: The batch can't be shared out evenly, or the task does not exist.
    """
    del model_dir, start_step
    provider = get_provider(cfg)
    if deterministic:
        raise ValueError("Deterministic training evaluation needs a pipeline that T5X's public release does not have.")
    _check_batch_size(cfg.batch_size, num_shards)

    read = functools.partial(
        get_dataset,
        shard_id=0,
        num_shards=1,
        feature_converter_cls=feature_converter_cls,
        # Finite, so that a split whose examples are all filtered away comes to an end.
        num_epochs=eval_steps * cfg.batch_size,
        continue_from_last_checkpoint=False,
    )

    def batches(single: DatasetConfig) -> tf.data.Dataset:
        # Sharded after packing, example by example: files may be fewer than hosts, and every host must get the same
        # number of batches.
        examples = read(dataclasses.replace(single, batch_size=1)).unbatch().repeat()
        shard = examples.shard(num_shards, shard_id).batch(cfg.batch_size // num_shards, drop_remainder=True)
        shard = shard.take(eval_steps)
        return shard.cache() if cfg.use_memory_cache else shard

    datasets = {}
    for task in seqio.get_subtasks(provider):
        if cfg.split in task.splits:
            logging.info("Reading task %r for training evaluation.", task.name)
            datasets[task.name] = batches(dataclasses.replace(cfg, mixture_or_task_name=task.name))
        else:
            logging.info("Task %r has no split %r: it is left out of training evaluation.", task.name, cfg.split)
    if isinstance(provider, seqio.Mixture):
        datasets[provider.name] = batches(cfg)
    return datasets


def _check_batch_size(batch_size: int, num_shards: int) -> None:
    rest = batch_size % num_shards
    if rest:
        nearest = " or ".join(str(size) for size in (batch_size - rest, batch_size - rest + num_shards) if size)
        raise ValueError(
            f"Batch size ({batch_size}) must be divisible by the number of data shards ({num_shards}); "
            f"the nearest that is: {nearest}."
        )


@contextlib.contextmanager
def _explaining(cfg: DatasetConfig, provider: seqio.Task | seqio.Mixture) -> Iterator[None]:
    """Says which setting of ``cfg`` is wrong where SeqIO and data sources only show its consequence."""
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
        splits = _declared_splits(provider, error)
        if splits is None or cfg.split in splits:
            raise
        known = ", ".join(map(repr, sorted(splits)))
        raise ValueError(
            f"{provider.name!r} has no split {cfg.split!r}, which `DatasetConfig.split` asks for; it has {known}."
        ) from error


def _declared_splits(provider: seqio.Task | seqio.Mixture, error: Exception) -> Sequence[str] | None:
    """The splits a provider can be asked for, or None if only reading can tell.

    TFDS understands slices ('train[:5%]') and names the right splits itself, unless the task declares a mapping: then a
    wrong name is a KeyError.
    """
    tasks = seqio.get_subtasks(provider)
    if any(isinstance(task.source, seqio.TfdsDataSource) for task in tasks) and not isinstance(error, KeyError):
        return None
    return sorted({split for task in tasks for split in task.splits})
