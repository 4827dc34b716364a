"""Runs a checkpoint over SeqIO tasks and writes predictions or scores.

usage: python -m t5x.infer --gin_file=MODEL.gin --gin_file=t5x/configs/runs/infer.gin [--gin.MACRO=VALUE ...] [flags]
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import seqio
import typing_extensions
from absl import logging
from t5x import checkpoints, gin_utils, models, partitioning, utils
from t5x._driver.chunks import ChunkFiles, TaskInference, check_vocabulary_feature, merge_chunks_to_file
from t5x._driver.errors import ConfigError
from t5x._driver.inferences import MODES, Inferences, write_inferences_to_file
from t5x._driver.tfexample_task import create_task_from_tfexample_file
from t5x._driver.write_pool import FailFastThreadPoolExecutor
from t5x._public import publish

__all__ = [
    "FailFastThreadPoolExecutor",
    "Inferences",
    "MergeFn",
    "SummarizeConfigFn",
    "WriteFn",
    "create_task_from_tfexample_file",
    "infer",
    "merge_chunks_to_file",
    "update_measurement_series",
    "write_inferences_to_file",
]

WriteFn = Callable[..., None]
MergeFn = Callable[[str, str, str, int | None], None]

_INFER_STEPS = {"predict": "predict_batch", "score": "score_batch", "predict_with_aux": "predict_batch_with_aux"}


class SummarizeConfigFn(typing_extensions.Protocol):
    """Writes the config of an inference where it can be found again."""

    def __call__(self, model_dir: str, summary_writer: Any, step: int) -> None:
        """Writes to the folder ``model_dir`` and, unless it is None, to the ``clu`` writer ``summary_writer``."""
        ...


def update_measurement_series(series_name: str, step: int, value: float) -> None:
    """Gets how long each chunk took; a place for a monitoring system to hook into, which does nothing by itself.

    Args:
        series_name: 'inference_total_sec', 'inference_examples_per_sec', 'writing_total_sec' or
            'writing_examples_per_sec'.
        step: number of the chunk.
        value: seconds, or examples a second.
    """


def infer(
    *,
    mode: str,
    model: models.BaseTransformerModel,
    dataset_cfg: utils.DatasetConfig,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    partitioner: partitioning.BasePartitioner,
    output_dir: str,
    checkpoint_period: int,
    shard_id: int = 0,
    num_shards: int = 1,
    merge_chunked_results: bool = True,
    write_fn: WriteFn = write_inferences_to_file,
    checkpoint_ds_iter: bool = True,
    train_state_initializer_cls: type[utils.TrainStateInitializer] = utils.TrainStateInitializer,
    fallback_init_rng: int | None = None,
    merge_fn: MergeFn = merge_chunks_to_file,
    summarize_config_fn: SummarizeConfigFn = gin_utils.summarize_gin_config,
    verify_matching_vocabs_fn: Callable[..., None] | None = utils.verify_matching_vocabs,
    output_vocab_feature_name: str = "targets",
    file_extension: str = "jsonl",
    keep_aux_as_numpy: bool = False,
    use_orbax: bool = True,
) -> None:
    """Predicts or scores every example of a task, or of each task of a mixture.

    Writes ``TASK-MODE.EXTENSION-SHARD-of-SHARDS`` and an empty file of that name with ``.COMPLETED``, ``config.gin``
    and ``model-info.txt`` into ``output_dir``.  What is completed is not done again; what was interrupted goes on after
    the last chunk that was written.

    Args:
        mode: 'predict' decodes, 'score' computes the log likelihood of the targets, 'predict_with_aux' decodes and
            scores.
        model: whose parameters to use.
        dataset_cfg: the tasks, split and batch size.
        restore_checkpoint_cfg: the checkpoint; it is made lenient, because the optimizer state is left out.
        partitioner: lays parameters and data out over the devices.
        output_dir: where everything is written.
        checkpoint_period: batches a chunk; results and position are saved after each chunk.
        shard_id: which shard of the data this run does.
        num_shards: into how many shards the data is divided over runs.
        merge_chunked_results: join the chunks to one file and remove them.
        write_fn: writes a chunk.
        checkpoint_ds_iter: save the position in the data; must be False for data that has no position to save.
        train_state_initializer_cls: restores the parameters.
        fallback_init_rng: seed for parameters that a checkpoint lacks, where ``fallback_to_scratch`` allows that.
        merge_fn: joins the chunks.
        summarize_config_fn: writes the config; called for shard 0 only.
        verify_matching_vocabs_fn: raises where dataset and model have different vocabularies; None does not look.
        output_vocab_feature_name: the output feature whose vocabulary decodes predictions.
        file_extension: of the result files.
        keep_aux_as_numpy: hand auxiliary values to ``write_fn`` as numpy arrays.
        use_orbax: passed on to ``t5x.utils.create_checkpoint_manager_and_restore``.

    Raises:
        ConfigError: where values of the config cannot work together, before any inference.
    """
    if mode not in MODES:
        raise ConfigError(f"infer.mode must be one of {', '.join(MODES)}, not {mode!r}")
    if not 0 <= shard_id < num_shards:
        raise ConfigError(
            f"infer.shard_id ({shard_id}) must be at least 0 and less than infer.num_shards ({num_shards})"
        )
    if shard_id == 0:
        summarize_config_fn(model_dir=output_dir, summary_writer=None, step=0)
    output_dir = re.sub(r"(?<!gs:)/{2,}", "/", output_dir)
    if dataset_cfg.module:
        utils.import_module(dataset_cfg.module)
    if verify_matching_vocabs_fn is not None:
        verify_matching_vocabs_fn(dataset_cfg, model)
    task_or_mixture = seqio.maybe_get_mixture_or_task(dataset_cfg.mixture_or_task_name)
    tasks = seqio.get_subtasks(task_or_mixture)
    for task in tasks:
        check_vocabulary_feature(task, output_vocab_feature_name)
    converter = model.FEATURE_CONVERTER_CLS(pack=False)
    lengths, batch_size = dataset_cfg.task_feature_lengths, dataset_cfg.batch_size

    @functools.cache  # where the provider is a task, its shapes are needed first, then its examples
    def open_inputs(provider: Any) -> tuple[Any, Any]:
        examples = provider.get_dataset(
            sequence_length=lengths,
            split=dataset_cfg.split,
            shuffle=False,
            num_epochs=1,
            shard_info=seqio.ShardInfo(index=shard_id, num_shards=num_shards),
            use_cached=dataset_cfg.use_cached,
            seed=dataset_cfg.seed,
        )
        return examples, converter(examples, task_feature_lengths=lengths)

    spec = open_inputs(task_or_mixture)[1].element_spec
    initializer = train_state_initializer_cls(
        optimizer_def=None,
        init_fn=model.get_initial_variables,
        input_shapes={name: (batch_size, *feature.shape) for name, feature in spec.items()},
        input_types={name: jnp.dtype(feature.dtype.as_numpy_dtype) for name, feature in spec.items()},
        partitioner=partitioner,
    )
    if shard_id == 0:
        utils.log_model_info(
            os.path.join(output_dir, "model-info.txt"), initializer.global_train_state_shape, partitioner
        )
    restore_checkpoint_cfg.strict = False
    path = restore_checkpoint_cfg.path
    fallback_key = None if fallback_init_rng is None else jax.random.PRNGKey(fallback_init_rng)
    train_state, _ = utils.create_checkpoint_manager_and_restore(
        initializer, partitioner, restore_checkpoint_cfg, path, fallback_key, use_orbax=use_orbax
    )
    if train_state is None:
        raise ConfigError(f"no checkpoint could be restored from RestoreCheckpointConfig.path ({path!r})")
    infer_fn = utils.get_infer_fn(
        infer_step=getattr(model, _INFER_STEPS[mode]),
        batch_size=batch_size,
        train_state_axes=initializer.train_state_axes,
        partitioner=partitioner,
        keep_aux_as_numpy=keep_aux_as_numpy,
    )
    for task in tasks:
        logging.info("Inferring task %s, shard %d of %d.", task.name, shard_id, num_shards)
        TaskInference(
            task=task,
            files=ChunkFiles(output_dir, task.name, mode, file_extension, shard_id, num_shards),
            infer_fn=functools.partial(infer_fn, train_state=train_state),
            open_inputs=open_inputs,
            chunk_size=checkpoint_period * batch_size,
            write_fn=write_fn,
            merge_fn=merge_fn if merge_chunked_results else None,
            save_position=checkpoint_ds_iter,
            vocabulary_feature=output_vocab_feature_name,
            measure=update_measurement_series,
            step=int(checkpoints.get_local_data(train_state.step)),
        ).run()
    logging.info("The inference ended: %d tasks.", len(tasks))


publish(__name__)

if __name__ == "__main__":
    from t5x._driver import script

    script.run(infer, script.SHARD)
