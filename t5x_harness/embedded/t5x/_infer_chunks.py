"""Inference over one task, chunk by chunk, so that it can be interrupted and resumed."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from absl import logging
from t5x import utils
from t5x._errors import ConfigError
from t5x._lazy import seqio, tf

if TYPE_CHECKING:
    from t5x.infer import FailFastThreadPoolExecutor, MergeFn, WriteFn

_COMPLETED = ".COMPLETED"

# Predictions or scores in order, and their auxiliary values, each a list in the same order.
Inferences = tuple[Sequence[Any], Mapping[str, Any]]


def in_order(result: Any) -> Inferences:
    """Sorts the result of an infer function by index: pairs of index and value, and optional auxiliary lists."""
    indexed, aux = result if isinstance(result, tuple) else (result, {})
    order = sorted(range(len(indexed)), key=lambda position: indexed[position][0])
    values = [indexed[position][1] for position in order]
    sorted_aux = jax.tree.map(lambda column: [column[position] for position in order], aux, is_leaf=is_column)
    return values, sorted_aux


def is_column(node: Any) -> bool:
    return isinstance(node, list | np.ndarray)


def _touch(path: str) -> None:
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("")


@dataclasses.dataclass(frozen=True)
class ChunkFiles:
    """The files of one task, mode and shard."""

    output_dir: str
    task: str
    mode: str
    extension: str
    shard_id: int
    num_shards: int

    @property
    def _shard(self) -> str:
        return f"{self.shard_id:05}-of-{self.num_shards:05}"

    @property
    def tmp_dir(self) -> str:
        """The folder for the chunks and the position in the data; it is removed at the end."""
        return os.path.join(self.output_dir, f"tmp-{self.task}-{self._shard}")

    @property
    def name(self) -> str:
        return f"{self.task}-{self.mode}.{self.extension}-{self._shard}"

    @property
    def completed(self) -> str:
        """An empty file that marks the result as complete."""
        return os.path.join(self.output_dir, self.name + _COMPLETED)

    def chunk(self, index: int) -> str:
        return os.path.join(self.tmp_dir, f"{self.name}-chunk{index:05}")


class DataPosition:
    """The position in the data, saved with every chunk so that a restart skips finished examples."""

    def __init__(self, iterator: Iterator[Any], tmp_dir: str):
        """Moves to the position saved in ``tmp_dir``, if any."""
        self._tmp_dir = tmp_dir
        self._saved = os.path.join(tmp_dir, "input.ckpt")
        self._checkpoint = tf.train.Checkpoint(ds=iterator)
        if tf.io.gfile.glob(self._saved + "*"):
            logging.info("Going on from the position in %s.", self._saved)
            self._checkpoint.read(self._saved).assert_consumed()

    def save_aside(self, chunk: int) -> str:
        """Saves the position after ``chunk``; it is used only after ``make_current``."""
        return str(self._checkpoint.write(os.path.join(self._tmp_dir, f"{chunk}.ckpt")))

    def make_current(self, aside: str) -> None:
        """Makes the position saved as ``aside`` the one to resume from."""
        for path in tf.io.gfile.glob(aside + "*"):
            tf.io.gfile.rename(path, self._saved + path.removeprefix(aside), overwrite=True)


@dataclasses.dataclass(frozen=True)
class TaskInference:
    """Runs the model over one task.

    Attributes:
        infer_fn: the partitioned step over a dataset, with the parameters bound.
        open_inputs: opens a task's examples, and the features that the model reads.
        chunk_size: examples per chunk.
        merge_fn: joins the chunks; None keeps them apart.
        vocabulary_feature: the output feature whose vocabulary decodes predictions.
        measure: called with the time of each chunk.
        step: the checkpoint's step.
        pool_cls: makes the thread that writes; handed in because ``t5x.infer`` may be running as ``__main__``.
    """

    task: seqio.Task
    files: ChunkFiles
    infer_fn: utils.InferFnCallable
    open_inputs: Callable[[seqio.Task], tuple[tf.data.Dataset, tf.data.Dataset]]
    chunk_size: int
    write_fn: WriteFn
    merge_fn: MergeFn | None
    save_position: bool
    vocabulary_feature: str
    measure: Callable[[str, int, float], None]
    step: int
    pool_cls: type[FailFastThreadPoolExecutor]

    def run(self) -> None:
        """Infers unless the result is complete; resumes an interrupted run."""
        files, writes = self.files, jax.process_index() == 0
        if tf.io.gfile.exists(files.completed):
            logging.info("%s exists: %s is done.", files.completed, self.task.name)
            return
        if writes:
            tf.io.gfile.makedirs(files.tmp_dir)
        chunks = self._chunks()
        position = DataPosition(chunks, files.tmp_dir) if self.save_position else None
        with self.pool_cls(max_workers=1, thread_name_prefix="t5x-write") as writer:
            for number, examples in chunks:
                index = int(number)
                if position is None and tf.io.gfile.exists(files.chunk(index) + _COMPLETED):
                    self._assert_there(files.chunk(index))
                    continue
                task_ds, inferences = self._infer(index, examples)
                if writes:
                    aside = position.save_aside(index) if position else None
                    writer.submit(self._write, index, task_ds, inferences, position, aside)
                utils.sync_global_devices(f"t5x.infer: {self.task.name} chunk {index}")
            writer.check_for_exceptions(wait=True)
        if writes:
            if self.merge_fn is not None:
                self.merge_fn(files.output_dir, files.name, files.tmp_dir, self.step)
                tf.io.gfile.rmtree(files.tmp_dir)
            _touch(files.completed)
        utils.sync_global_devices(f"t5x.infer: {self.task.name} complete")

    def _chunks(self) -> Iterator[tuple[Any, Any]]:
        """Returns a ``tf.data`` iterator over the chunks: indices, the task's examples and the model's features."""
        pairs = tf.data.Dataset.zip(self.open_inputs(self.task)).padded_batch(self.chunk_size, drop_remainder=False)
        return iter(pairs.enumerate().prefetch(tf.data.AUTOTUNE))

    def _assert_there(self, chunk: str) -> None:
        if not tf.io.gfile.exists(chunk):
            raise FileNotFoundError(f"{chunk}{_COMPLETED} is there, but {chunk} is not: remove both and infer again")

    def _infer(self, index: int, examples: Any) -> tuple[tf.data.Dataset, Inferences]:
        began = time.time()
        chunk = tf.data.Dataset.from_tensor_slices(examples)
        for_task = chunk.map(lambda task, model: task, num_parallel_calls=tf.data.AUTOTUNE)
        for_model = chunk.map(lambda task, model: model, num_parallel_calls=tf.data.AUTOTUNE)
        # Sampling differs from chunk to chunk, but not from run to run.
        key = jax.random.fold_in(jax.random.PRNGKey(0), index)
        inferences = in_order(self.infer_fn(for_model.enumerate(), rng=key))
        self._report_time("inference", index, len(inferences[0]), time.time() - began)
        return for_task, inferences

    def _write(
        self,
        index: int,
        task_ds: tf.data.Dataset,
        inferences: Inferences,
        position: DataPosition | None,
        aside: str | None,
    ) -> None:
        began = time.time()
        path = self.files.chunk(index)
        vocabulary = self.task.output_features[self.vocabulary_feature].vocabulary
        self.write_fn(path, inferences, task_ds, self.files.mode, vocabulary)
        _touch(path + _COMPLETED)
        self._report_time("writing", index, len(inferences[0]), time.time() - began)
        if position is not None and aside is not None:
            position.make_current(aside)

    def _report_time(self, what: str, index: int, examples: int, seconds: float) -> None:
        logging.info("Chunk %d: %s %d examples took %.2f seconds.", index, what, examples, seconds)
        self.measure(f"{what}_total_sec", index, seconds)
        self.measure(f"{what}_examples_per_sec", index, examples / seconds)


def check_vocabulary_feature(task: seqio.Task, feature: str) -> None:
    """Raises a ConfigError before any inference if ``task`` has no output feature called ``feature``."""
    if feature not in task.output_features:
        raise ConfigError(
            f"infer.output_vocab_feature_name is {feature!r}, but task {task.name!r} has the output features "
            f"{', '.join(task.output_features)}"
        )
