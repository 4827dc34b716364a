"""Runs a checkpoint over SeqIO tasks and writes predictions or scores.

usage: python -m t5x.infer --gin_file=MODEL.gin --gin_file=t5x/configs/runs/infer.gin [--gin.MACRO=VALUE ...] [flags]
"""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import typing_extensions
from absl import logging
from t5x import checkpoints, gin_utils, models, partitioning, utils
from t5x._errors import ConfigError
from t5x._infer_chunks import ChunkFiles, Inferences, TaskInference, check_vocabulary_feature, is_column
from t5x._lazy import JSON_ENCODER, seqio, tf

WriteFn = Callable[..., None]
MergeFn = Callable[[str, str, str, int | None], None]
_INFER_STEPS = {"predict": "predict_batch", "score": "score_batch", "predict_with_aux": "predict_batch_with_aux"}
_PRETOKENIZED = "_pretokenized"


class SummarizeConfigFn(typing_extensions.Protocol):
    """Writes the config of an inference beside its results."""

    def __call__(self, model_dir: str, summary_writer: Any, step: int) -> None:
        """Writes to the folder ``model_dir`` and, unless it is None, to the ``clu`` writer ``summary_writer``."""


class FailFastThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """A thread pool that raises its threads' exceptions in the thread that uses it, at the next call.

    Use it from one thread only.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._unchecked: list[concurrent.futures.Future[Any]] = []

    def check_for_exceptions(self, wait: bool = False) -> None:
        """Raises the first exception of the calls that have ended; waits for all of them if ``wait`` is set."""
        if wait:
            concurrent.futures.wait(self._unchecked)
        ended = [future for future in self._unchecked if future.done()]
        self._unchecked = [future for future in self._unchecked if future not in ended]
        for future in ended:
            future.result()

    def submit(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Schedules a call, and raises the exceptions of earlier calls."""
        future = super().submit(*args, **kwargs)
        self._unchecked.append(future)
        self.check_for_exceptions()
        return future

    def shutdown(self, *args: Any, wait: bool = False, **kwargs: Any) -> None:
        """Ends the pool and raises the exceptions of calls: of those that have ended, or of all if ``wait`` is set."""
        try:
            self.check_for_exceptions(wait=wait)
        finally:
            super().shutdown(*args, wait=wait, **kwargs)


def create_task_from_tfexample_file(
    paths: Sequence[str],
    file_type: str,
    inputs_key: str,
    targets_key: str | None,
    features: Mapping[str, seqio.Feature],
    task_id: str | None = None,
) -> str:
    """Registers a task with one split, ``infer``, that reads serialized TFExamples, and returns its name.

    ``inputs_key`` and ``targets_key``, which is None unless scoring, name the features of the examples that hold the
    texts, UTF-8. ``features`` has a SeqIO feature for 'inputs', and for 'targets' if there are any. The name is
    ``infer_`` and ``task_id``, by default made from paths, which may be patterns, and keys.

    Raises:
        ConfigError: if no file matches, or ``file_type`` is not 'tfrecord'.
    """
    files = tf.io.gfile.glob(paths)
    if not files:
        raise ConfigError(f"no file matches the TFExample paths {list(paths)}")
    if file_type != "tfrecord":
        raise ConfigError(f"TFExample files of type {file_type!r} cannot be read; types are tfrecord")
    logging.info("Reading TFExamples from %s.", files)
    keys = [inputs_key, *([targets_key] if targets_key else [])]
    if task_id is None:
        identity = ":".join([*paths, inputs_key, targets_key or ""])
        task_id = hashlib.md5(identity.encode()).hexdigest()[:10]
    task = seqio.TaskRegistry.add(
        f"infer_{task_id}",
        source=seqio.TFExampleDataSource(
            {"infer": paths},
            feature_description={key: tf.io.FixedLenFeature([], tf.string) for key in keys},
            reader_cls=tf.data.TFRecordDataset,
        ),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"inputs": inputs_key, "targets": targets_key}),
            seqio.preprocessors.tokenize_and_append_eos,
        ],
        output_features=features,
    )
    return str(task.name)


def merge_chunks_to_file(output_dir: str, output_fname: str, tmp_dir: str, step: int | None) -> None:
    """Joins the files ``OUTPUT_FNAME-chunkNNNNN`` in ``tmp_dir`` into one in ``output_dir``; ``step`` is not used.

    Raises:
        FileNotFoundError: if there is no chunk, or one is missing.
    """
    prefix = os.path.join(tmp_dir, f"{output_fname}-chunk")
    chunks = sorted(tf.io.gfile.glob(prefix + "?????"))
    if not chunks:
        raise FileNotFoundError(f"there are no results to write to {output_fname}: did the input have no example?")
    last = int(chunks[-1].removeprefix(prefix))
    if last + 1 != len(chunks):
        raise FileNotFoundError(
            f"there should be {last + 1} chunks of {output_fname} in {tmp_dir}, but there are {len(chunks)}: remove "
            "that folder and infer again"
        )
    joined = os.path.join(output_dir, output_fname)
    with tf.io.gfile.GFile(joined, "wb") as target:
        for chunk in chunks:
            with tf.io.gfile.GFile(chunk, "rb") as source:
                shutil.copyfileobj(source, target)
    logging.info("The results are in %s.", joined)


def _plain(value: Any) -> Any:
    """Converts a value for JSON; NumPy integers become floats, as T5X writes them."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, np.integer | np.floating | jnp.bfloat16.dtype.type):
        return float(value)
    return value


def _kept_inputs(
    example: Mapping[str, Any], include_all_inputs: bool, fields: Sequence[str] | None
) -> Iterator[tuple[str, Any]]:
    for name, value in example.items():
        stem = name.removesuffix(_PRETOKENIZED)
        if include_all_inputs or (
            name in fields or (stem != name and stem in fields) if fields is not None else stem != name
        ):
            yield name, _plain(value)


def write_inferences_to_file(
    path: str,
    inferences: Inferences,
    task_ds: tf.data.Dataset,
    mode: str,
    vocabulary: seqio.Vocabulary | None = None,
    json_encoder_cls: type[json.JSONEncoder] = JSON_ENCODER,
    include_all_inputs: bool = False,
    input_fields_to_include: Sequence[str] | None = None,
    output_ids: bool = False,
) -> None:
    """Writes one JSON object per line: the inputs, and the prediction or score.

    ``inferences`` are predicted token ids, which ``vocabulary`` decodes, or scores, per example, and auxiliary values
    per example by name; ``task_ds`` has the examples in the same order. The inputs written are ``*_pretokenized``
    features, or those in ``input_fields_to_include`` and their pretokenized texts, or all. ``output_ids`` writes the
    token ids up to the first padding, too.

    Raises:
        ConfigError: if the mode is unknown, a vocabulary is missing, or both ways to choose inputs are used.
    """
    if mode not in _INFER_STEPS:
        raise ConfigError(f"the mode must be one of {', '.join(_INFER_STEPS)}, not {mode!r}")
    if mode != "score" and vocabulary is None:
        raise ConfigError(f"write_inferences_to_file needs a vocabulary to decode with in mode {mode!r}")
    if include_all_inputs and input_fields_to_include is not None:
        raise ConfigError(
            "write_inferences_to_file.include_all_inputs is True, so input_fields_to_include "
            f"({list(input_fields_to_include)}) must be None"
        )
    values, aux = inferences

    with tf.io.gfile.GFile(path, "w") as file:
        for index, example in enumerate(task_ds.as_numpy_iterator()):
            record: dict[str, Any] = {
                "inputs": dict(_kept_inputs(example, include_all_inputs, input_fields_to_include))
            }
            if mode == "score":
                record["score"] = _plain(values[index])
            elif vocabulary is not None:  # checked above
                ids = tf.constant(values[index])
                record["prediction"] = _plain(vocabulary.decode_tf(ids).numpy())
                if output_ids:
                    tokens = ids.numpy().tolist()
                    record["prediction_tokens"] = tokens[: tokens.index(0)] if 0 in tokens else tokens
            if mode == "predict_with_aux" or (mode == "score" and aux):
                mine = jax.tree.map(lambda column, index=index: column[index], aux, is_leaf=is_column)
                record["aux"] = jax.tree.map(_plain, mine)
            file.write(json.dumps(record, cls=json_encoder_cls) + "\n")


def update_measurement_series(series_name: str, step: int, value: float) -> None:
    """Does nothing by itself; a monitoring system can hook in here to get the time of each chunk.

    Series are 'inference_total_sec', 'inference_examples_per_sec', 'writing_total_sec' and 'writing_examples_per_sec';
    the step is the number of the chunk.
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
    and ``model-info.txt`` into ``output_dir``. Completed tasks are not repeated; an interrupted one resumes after
    the last chunk that was written.

    ``mode`` is 'predict', which decodes, 'score', which computes the log likelihood of the targets, or
    'predict_with_aux', which decodes and scores. ``write_fn`` writes a chunk of ``checkpoint_period`` batches, after
    which the position in the data is saved too, unless ``checkpoint_ds_iter`` is False, as it must be for data that
    cannot save it. This run does shard ``shard_id`` of the ``num_shards`` that runs divide the data into.

    ``restore_checkpoint_cfg`` is made lenient, because the optimizer state is left out; if its
    ``fallback_to_scratch`` allows that, parameters that the checkpoint lacks come from the seed ``fallback_init_rng``.
    The vocabulary of ``output_vocab_feature_name`` decodes predictions. ``verify_matching_vocabs_fn`` raises if
    dataset and model have different vocabularies; None skips the check.

    Raises:
        ConfigError: values of the config cannot work together; raised before any inference.
    """
    if mode not in _INFER_STEPS:
        raise ConfigError(f"infer.mode must be one of {', '.join(_INFER_STEPS)}, not {mode!r}")
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

    @functools.cache  # if the provider is a task, its shapes are needed first, then its examples
    def open_inputs(provider: seqio.Task | seqio.Mixture) -> tuple[tf.data.Dataset, tf.data.Dataset]:
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
            pool_cls=FailFastThreadPoolExecutor,
        ).run()
    logging.info("The inference ended: %d tasks.", len(tasks))


if __name__ == "__main__":
    from t5x import _script

    _script.run_script(infer, define_flags=_script.define_shard_flag, arguments=_script.shard_arguments)
