"""Checkpoints: in orbax layout, which T5X writes by default, and in T5X's own layout, which public models have."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import flax.core
import gin
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from absl import logging
from etils import epath
from flax import serialization, traverse_util
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec
from orbax.checkpoint import checkpoint_managers
from t5x import _arrays, _dataset_state, _restoring, checkpoint_importer, checkpoint_utils, partitioning, state_utils
from t5x import train_state as train_state_lib
from t5x._dataset_state import load_iterator, save_iterator
from t5x._lazy import gfile, tf
from t5x._legacy_checkpoints import FILE_NAME, CheckpointFile, what_is_there
from t5x._restoring import StateReader, check_complete, transform_for_restore
from t5x.checkpoint_importer import LazyArray, LazyThreadPoolArray
from t5x.checkpoint_importer import LazyAwaitableArray as LazyAwaitableArray
from t5x.checkpoint_utils import CheckpointTypes
from t5x.checkpoints_utils import (
    _TRAIN_DS_PREFIX,
    all_dataset_checkpoint_steps,
    all_steps,
    get_checkpoint_dir,
    get_checkpoint_prefix,
    get_step_from_checkpoint_dir,
    latest_step,
)
from t5x.partitioning import LocalChunkInfo

VERSION = 3
PyTree = Any
PyTreeDef = jax.tree_util.PyTreeDef
_READERS = 32
_STATE = "state"
_DATASET = "dataset"
_SAVE_TIMEOUT_SECONDS = 600
_EVENT_FILES = "*tfevents*"
_MODES = ("max", "min")


@dataclasses.dataclass
class _ParameterInfo:
    """How one array of the state is stored, under its path as its name.

    Attributes:
        ts_spec: its place, relative to the checkpoint's folder; None for an array in the msgpack file.
        local_chunk_info: the part of it on this process.
        axes: how it is divided among devices; None if it is replicated.
    """

    name: str
    shape: tuple[int, ...] | None
    ts_spec: ts.Spec | None
    local_chunk_info: LocalChunkInfo | None
    axes: PartitionSpec | None = None


def register_ts_spec_for_serialization() -> None:
    """Makes Flax write tensorstore specs into msgpack files as JSON."""
    serialization.register_serialization_state(
        ts.Spec,
        ty_to_state_dict=lambda spec: spec.to_json(),
        ty_from_state_dict=lambda _, stored: (
            ts.Spec(stored) if isinstance(stored, dict | flax.core.FrozenDict) else stored
        ),
        override=True,
    )


def fake_param_info(maybe_tspec: Any) -> _ParameterInfo | None:
    """Describes a stored leaf by itself, without a model to restore into.

    The leaf is a tensorstore spec, an array, or None for a parameter that no optimizer updates.
    """
    if maybe_tspec is None:
        return None
    if not isinstance(maybe_tspec, ts.Spec):
        return _ParameterInfo(name="", shape=None, ts_spec=None, local_chunk_info=None)
    return _ParameterInfo(
        name="",
        shape=tuple(maybe_tspec.to_json()["metadata"]["shape"]),
        ts_spec=maybe_tspec,
        local_chunk_info=LocalChunkInfo(slice=(slice(None, None),), replica_id=0),
    )


register_ts_spec_for_serialization()


def get_local_data(x: Any) -> Any:
    """Returns this process's first part of a ``jax.Array``; for a replicated array, that is its value."""
    if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
        return x.addressable_data(0)
    return x


def _step_from_train_state(train_state: Any) -> int:
    step = train_state.step
    return int(get_local_data(step.get() if isinstance(step, LazyArray) else step))


class SaveStateTransformationFn(Protocol):
    """Changes a state before it is saved."""

    def __call__(self, state_dict: Any, parameter_infos: Any) -> tuple[Any, Any]:
        """Returns the state, as nested dicts, and its ``parameter_infos``, a similar tree, with the same changes."""


class RestoreStateTransformationFn(Protocol):
    """Changes a state after it is read and before it is restored into the model's."""

    def __call__(self, state_dict: Any, target_state_dict: Any, *, is_resuming: bool = False) -> Any:
        """Returns the changed state, as nested dicts, for a model with the state ``target_state_dict``.

        The leaves of ``state_dict`` describe stored arrays that are not read yet. ``is_resuming`` says that the
        checkpoint is this run's own, so that the change was made before.
        """


class CheckpointerConstructor(Protocol):
    """Makes a ``Checkpointer``; gin configurations pass it with some arguments bound."""

    def __call__(
        self,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        checkpoints_dir: str,
        dataset_iterator: Any = None,
        *,
        keep: int | None = None,
        save_dtype: Any = np.float32,
        restore_dtype: Any = None,
        keep_dataset_checkpoints: int | None = None,
    ) -> Checkpointer:
        """Returns a checkpointer; the arguments are those of ``Checkpointer``."""


@gin.configurable
class CheckpointManagerConstructor(Protocol):
    """Makes an ``OrbaxCheckpointManagerInterface``; gin configurations pass it with some arguments bound."""

    def __call__(
        self,
        directory: str,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        dataset_iterator: Any = None,
        save_dtype: Any = None,
        restore_dtype: Any = None,
        keep: int | None = None,
        period: int | None = None,
        force_keep_period: int | None = None,
        checkpoint_steps: Sequence[int] | None = None,
    ) -> OrbaxCheckpointManagerInterface:
        """Returns a manager; the arguments are those of ``OrbaxCheckpointManagerInterface``."""


def _transform_for_save(
    state_dict: Mapping[str, Any], parameter_infos: Mapping[str, Any], functions: Sequence[SaveStateTransformationFn]
) -> tuple[Any, Any]:
    for function in functions:
        state_dict, parameter_infos = function(state_dict, parameter_infos)
    return state_dict, parameter_infos


class Checkpointer:
    """Saves and restores train states in T5X's own layout.

    Args:
        train_state: a state with the structure, shapes and dtypes of those to save and restore.
        partitioner: knows how arrays are divided.
        checkpoints_dir: folder of all checkpoints.
        dataset_iterator: an input pipeline whose position is saved too.
        keep: remove the oldest checkpoints beyond this number after a save; pinned ones stay.
        save_dtype: dtype that parameters are saved in.
        restore_dtype: dtype that parameters are restored in; as saved by default.
        keep_dataset_checkpoints: remove the oldest dataset states beyond this number after a save.
    """

    def __init__(
        self,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        checkpoints_dir: str,
        dataset_iterator: Any = None,
        *,
        keep: int | None = None,
        save_dtype: Any = np.float32,
        restore_dtype: Any = None,
        keep_dataset_checkpoints: int | None = None,
    ):
        _dataset_state.check_iterator(dataset_iterator)
        self.checkpoints_dir, self.restore_dtype = checkpoints_dir, restore_dtype
        self.keep, self.keep_dataset_checkpoints = keep, keep_dataset_checkpoints
        self._train_state, self._partitioner = train_state, partitioner
        self._dataset_iterator, self._save_dtype = dataset_iterator, save_dtype
        layout = partitioner.get_data_layout()
        self._dataset_ckpt_name = _dataset_state.iterator_file_name(layout)
        self._writes_dataset = dataset_iterator is not None and layout.is_first_host_in_replica_set
        self._parameter_infos = self._get_parameter_infos()

    def _get_parameter_infos(self) -> dict[str, Any]:
        state = _flat(self._train_state.state_dict())
        axes = _flat(self._partitioner.get_mesh_axes(self._train_state).state_dict())
        infos = {name: self._parameter_info(name, leaf, axes.get(name)) for name, leaf in state.items()}
        return traverse_util.unflatten_dict(infos, sep="/")

    def _parameter_info(self, name: str, leaf: Any, axes: Any) -> Any:
        if leaf is None or leaf is traverse_util.empty_node:
            return leaf
        if axes is None:
            return _ParameterInfo(name, tuple(leaf.shape), ts_spec=None, local_chunk_info=None)
        dtype = self._save_dtype if _is_parameter(name) and self._save_dtype is not None else leaf.dtype
        write_shape = _restoring.sharding_on(self._partitioner.mesh, axes).shard_shape(tuple(leaf.shape))
        return _ParameterInfo(
            name,
            tuple(leaf.shape),
            ts_spec=_arrays.new_spec(self.checkpoints_dir, name, leaf.shape, dtype, write_shape),
            local_chunk_info=self._partitioner.get_local_chunk_info(tuple(leaf.shape), axes),
            axes=axes,
        )

    def all_steps(self) -> Sequence[int]:
        """Returns the steps that have a checkpoint, ascending."""
        return all_steps(self.checkpoints_dir)

    def all_dataset_checkpoint_steps(self) -> Sequence[int]:
        """Returns the steps whose checkpoint holds the position of the input pipeline, ascending."""
        return all_dataset_checkpoint_steps(self.checkpoints_dir)

    def latest_step(self) -> int | None:
        """Returns the last step that has a checkpoint, or None."""
        return latest_step(self.checkpoints_dir)

    def _get_checkpoint_dir(self, step: int) -> str:
        return get_checkpoint_dir(self.checkpoints_dir, step)

    def save(
        self,
        train_state: train_state_lib.TrainState,
        state_transformation_fns: Sequence[SaveStateTransformationFn] = (),
        *,
        concurrent_gb: int = 128,
    ) -> None:
        """Saves a state under its step, after ``state_transformation_fns``; does nothing if that step has a checkpoint.

        Lazy arrays in the state are read one at a time; about ``concurrent_gb`` gigabytes at most are in host
        memory.
        """
        step = _step_from_train_state(train_state)
        final_dir = self._get_checkpoint_dir(step)
        if gfile.exists(final_dir):
            logging.info("%s is there already and is not written again", final_dir)
            return
        started = int(multihost_utils.broadcast_one_to_all(np.int32(time.time())))
        tmp_dir = f"{final_dir}.tmp-{started}"
        is_first = jax.process_index() == 0
        if is_first:
            gfile.makedirs(tmp_dir)
        multihost_utils.sync_global_devices(f"checkpointer:begin:{tmp_dir}")

        state, infos = _transform_for_save(train_state.state_dict(), self._parameter_infos, state_transformation_fns)
        written = self._write_arrays(tmp_dir, state, infos, concurrent_gb * 10**9)
        if self._writes_dataset:
            _dataset_state.save_iterator(self._dataset_iterator, os.path.join(tmp_dir, self._dataset_ckpt_name))
        multihost_utils.sync_global_devices(f"checkpointer:written:{tmp_dir}")

        if is_first:
            content = serialization.to_bytes({"version": VERSION, "optimizer": written})
            with gfile.GFile(os.path.join(tmp_dir, "checkpoint"), "wb") as file:
                file.write(content)
            gfile.rename(tmp_dir, final_dir)
            logging.info("Saved step %d to %s", step, final_dir)
            self._remove_old_checkpoints()
            self._remove_old_dataset_checkpoints()
        multihost_utils.sync_global_devices(f"checkpointer:complete:{final_dir}")

    def _write_arrays(self, tmp_dir: str, state: Any, infos: Any, max_bytes: int) -> dict[str, Any]:
        """Writes the arrays that have their own folder; returns the contents of the msgpack file."""
        info_of = _flat(infos)
        written: dict[str, Any] = {}
        pending: list[tuple[list[Any], int]] = []
        for name, leaf in _flat(state).items():
            value = leaf.get() if isinstance(leaf, LazyArray) else leaf
            info = info_of.get(name)
            if isinstance(info, _ParameterInfo) and info.ts_spec is not None:
                pending.append(_arrays.write_array(tmp_dir, info.ts_spec, value))
                while len(pending) > 1 and sum(size for _, size in pending) > max_bytes:
                    _finish(pending.pop(0)[0])
                written[name] = info.ts_spec
            elif _is_parameter(name) and hasattr(value, "astype") and self._save_dtype is not None:
                written[name] = np.asarray(get_local_data(value)).astype(jnp.dtype(self._save_dtype))
            else:
                written[name] = get_local_data(value)
        for futures, _ in pending:
            _finish(futures)
        return traverse_util.unflatten_dict(written, sep="/")

    def _remove_old_checkpoints(self) -> None:
        for step in self.all_steps()[: -self.keep] if self.keep else ():
            checkpoint_utils.remove_checkpoint_dir(self._get_checkpoint_dir(step))

    def _remove_old_dataset_checkpoints(self) -> None:
        keep = self.keep_dataset_checkpoints
        for step in self.all_dataset_checkpoint_steps()[:-keep] if keep else ():
            checkpoint_utils.remove_dataset_checkpoint(self._get_checkpoint_dir(step), _TRAIN_DS_PREFIX)

    def restore(
        self,
        step: int | None = None,
        path: str | None = None,
        state_transformation_fns: Sequence[RestoreStateTransformationFn] = (),
        fallback_state: Mapping[str, Any] | None = None,
        lazy_parameters: bool = False,
    ) -> train_state_lib.TrainState:
        """Restores the checkpoint of a step, the last by default, or of a ``path``: its folder or the file in it.

        ``state_transformation_fns`` change the checkpoint's state, and ``fallback_state`` fills the gaps that remain.
        ``lazy_parameters`` returns arrays that are read on demand; that needs ``params_on_devices=False``.

        Raises:
            ValueError: there is no such checkpoint, it is of another format, lacks leaves or has other shapes.
        """
        if lazy_parameters and self._partitioner.params_on_devices:
            raise ValueError("lazy_parameters needs a partitioner with params_on_devices=False")
        file = CheckpointFile.read(self._path_to_restore(step, path))
        target = self._train_state.state_dict()
        stored = _flat(transform_for_restore(file.state, target, state_transformation_fns))
        fallback = {} if fallback_state is None else state_utils.flatten_state_dict(fallback_state)
        infos = _flat(self._parameter_infos)
        wanted = {name: leaf for name, leaf in _flat(target).items() if isinstance(infos[name], _ParameterInfo)}
        check_complete(file.path, wanted, stored, fallback)

        def value_of(name: str) -> Any:
            if name not in stored:
                logging.warning("%s is not in checkpoint %s and starts from its initial value", name, file.path)
                return self._placed(fallback[name], infos[name])
            lazy = self._lazy(file, name, stored[name], wanted[name], infos[name])
            return lazy if lazy_parameters else lazy.get()

        with ThreadPoolExecutor(_READERS) as readers:
            values = dict(zip(wanted, readers.map(value_of, wanted), strict=True))
        if self._dataset_iterator is not None:
            _dataset_state.load_iterator(self._dataset_iterator, os.path.join(file.folder, self._dataset_ckpt_name))
        unread = {name: leaf for name, leaf in _flat(target).items() if name not in wanted}
        return self._train_state.restore_state(traverse_util.unflatten_dict(values | unread, sep="/"))

    def _path_to_restore(self, step: int | None, path: str | None) -> str:
        if step is not None and path is not None:
            raise ValueError(f"restore takes step or path, not both: step={step}, path={path!r}")
        if path:
            return path
        step = self.latest_step() if step is None else step
        if not step:  # T5X does not restore step 0 unless it is given as a path
            raise ValueError(
                f"No checkpoint after step 0 in {self.checkpoints_dir!r}; steps there: {list(self.all_steps())}"
            )
        return self._get_checkpoint_dir(step)

    def _lazy(self, file: CheckpointFile, name: str, stored: Any, expected: Any, info: _ParameterInfo) -> LazyArray:
        is_spec = isinstance(stored, Mapping)
        shape = _arrays.stored_shape(stored) if is_spec else tuple(np.shape(stored))
        _restoring.check_shape(file.folder, name, shape, expected, exact=is_spec or _is_parameter(name))
        cast = self.restore_dtype if _is_parameter(name) else None
        stored_dtype = _arrays.stored_dtype(stored) if is_spec else np.asarray(stored).dtype

        def read() -> Any:
            if is_spec and self._partitioner.params_on_devices:
                sharding = _restoring.sharding_on(self._partitioner.mesh, info.axes)
                return _arrays.read_array(file.folder, stored, name, cast, sharding)
            value = _arrays.read_array(file.folder, stored, name, cast) if is_spec else np.asarray(stored)
            return self._placed(value, info, cast)

        return LazyThreadPoolArray(shape, stored_dtype if cast is None else cast, read)

    def _placed(self, value: Any, info: _ParameterInfo, dtype: Any = None) -> Any:
        if not self._partitioner.params_on_devices:
            return value if dtype is None else value.astype(jnp.dtype(dtype))
        return _restoring.place(value, _restoring.sharding_on(self._partitioner.mesh, info.axes), dtype)

    def restore_from_tf_checkpoint(
        self, path_or_dir: str, strict: bool = True, translator: checkpoint_importer.CheckpointTranslator | None = None
    ) -> train_state_lib.TrainState:
        """Restores a checkpoint of the Mesh TensorFlow T5, with the arguments of ``restore_from_t5_checkpoint``."""
        state = checkpoint_importer.restore_from_t5_checkpoint(
            self._train_state.state_dict(), path_or_dir, strict=strict, translator=translator
        )
        infos = _flat(self._parameter_infos)
        values = {
            name: self._placed(value, infos[name], self.restore_dtype if _is_parameter(name) else None)
            for name, value in _flat(state).items()
        }
        return self._train_state.restore_state(traverse_util.unflatten_dict(values, sep="/"))

    def convert_from_tf_checkpoint(
        self,
        path_or_dir: str,
        *,
        state_transformation_fns: Sequence[SaveStateTransformationFn] = (),
        concurrent_gb: int = 16,
        translator: checkpoint_importer.CheckpointTranslator | None = None,
    ) -> None:
        """Saves a TensorFlow T5 checkpoint in T5X's layout, array by array, as ``save`` does."""
        state = checkpoint_importer.restore_from_t5_checkpoint(
            self._train_state.state_dict(), path_or_dir, lazy_parameters=True, translator=translator
        )
        self.save(self._train_state.restore_state(state), state_transformation_fns, concurrent_gb=concurrent_gb)


def _finish(futures: Sequence[Any]) -> None:
    for future in futures:
        future.result()


def _is_parameter(name: str) -> bool:
    return name.startswith("target/")


def _flat(tree: Any) -> dict[str, Any]:
    return state_utils.flatten_state_dict(flax.core.unfreeze(tree), keep_empty_nodes=True)


def populate_metrics_for_steps(checkpoints_dir: str, metric_name: str, steps: Iterable[int]) -> Mapping[int, float]:
    """Returns a metric's value at each step that has one.

    The files are TensorBoard's in ``checkpoints_dir``. ``metric_name`` is ``run/tag``, where the run is a folder, such
    as ``train/accuracy`` or ``inference_eval/glue_cola_v002/eval/accuracy``. The shortest run that has event files
    counts.
    """
    wanted = set(steps)
    parts = metric_name.split("/")
    for length in range(1, len(parts)):
        files = sorted(tf.io.gfile.glob(os.path.join(checkpoints_dir, *parts[:length], _EVENT_FILES)))
        if files:
            tag = "/".join(parts[length:])
            return {step: value for file in files for step, value in _scalars(file, tag) if step in wanted}
    return {}


def _scalars(file: str, tag: str) -> Iterator[tuple[int, float]]:
    records = iter(tf.data.TFRecordDataset(file).as_numpy_iterator())
    while True:
        try:
            record = next(records, None)
        except tf.errors.DataLossError:  # the writer has not finished a record
            return
        if record is None:
            return
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value[:1]:  # T5X reads only the first value of an event
            if value.tag == tag:
                is_tensor = value.HasField("tensor")
                yield event.step, float(tf.make_ndarray(value.tensor)) if is_tensor else value.simple_value


@gin.configurable
class SaveBestCheckpointer(Checkpointer):
    """A checkpointer that keeps the ``keep`` checkpoints with the best metric, and the latest one.

    The metric, ``metric_name_to_monitor``, is ``run/tag`` in the TensorBoard files beside the checkpoints;
    ``metric_mode``, ``max`` or ``min``, says which values are the best. Checkpoints of steps that ``force_keep_period``
    divides stay, and those without a value are the first to go unless ``keep_checkpoints_without_metrics`` is set.

    Raises:
        ValueError: ``metric_mode`` is neither of the two.
    """

    def __init__(
        self,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        checkpoints_dir: str,
        dataset_iterator: Any = None,
        *,
        keep: int | None = None,
        save_dtype: Any = np.float32,
        restore_dtype: Any = None,
        metric_name_to_monitor: str = "train/accuracy",
        metric_mode: str = "max",
        keep_checkpoints_without_metrics: bool = True,
        force_keep_period: int | None = None,
        keep_dataset_checkpoints: int | None = None,
    ):
        if metric_mode not in _MODES:
            raise ValueError(f"SaveBestCheckpointer.metric_mode is {metric_mode!r}; it must be one of {_MODES}")
        super().__init__(
            train_state,
            partitioner,
            checkpoints_dir,
            dataset_iterator,
            keep=keep,
            save_dtype=save_dtype,
            restore_dtype=restore_dtype,
            keep_dataset_checkpoints=keep_dataset_checkpoints,
        )
        # The train script passes these four to the orbax manager if that manager saves.
        self._force_keep_period = force_keep_period
        self._keep_checkpoints_without_metrics = keep_checkpoints_without_metrics
        self._metric_mode, self._metric_name_to_monitor = metric_mode, metric_name_to_monitor

    def _remove_old_checkpoints(self) -> None:
        if not self.keep:
            return
        *older, latest = self.all_steps()
        if self._force_keep_period:
            older = [step for step in older if step % self._force_keep_period]
        if len(older) <= self.keep:
            return
        values = populate_metrics_for_steps(self.checkpoints_dir, self._metric_name_to_monitor, [*older, latest])
        logging.info("%s by step: %s", self._metric_name_to_monitor, values)
        if self._keep_checkpoints_without_metrics:
            older = [step for step in older if step in values]
        sign = 1.0 if self._metric_mode == "max" else -1.0
        worst_first = sorted(older, key=lambda step: sign * values[step] if step in values else float("-inf"))
        for step in worst_first[: -self.keep]:
            checkpoint_utils.remove_checkpoint_dir(self._get_checkpoint_dir(step))


@dataclasses.dataclass(frozen=True)
class _ScoredCheckpoint:
    """A checkpoint with its metric, in the form that orbax's policies read."""

    step: int
    time: datetime.datetime
    metrics: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BestByTensorBoard(checkpoint_managers.PreservationPolicy):
    """Tells orbax to keep the checkpoints with the best value of a metric in TensorBoard files."""

    directory: str
    metric_name: str
    mode: str
    keep: int | None
    keep_without_metrics: bool

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: checkpoint_managers.PreservationContext
    ) -> Sequence[bool]:
        """Returns for each checkpoint whether to keep it."""
        values = populate_metrics_for_steps(self.directory, self.metric_name, [info.step for info in checkpoints])
        best = checkpoint_managers.BestN(
            get_metric_fn=float,
            reverse=self.mode == "min",
            n=self.keep,
            keep_checkpoints_without_metrics=self.keep_without_metrics,
        )
        scored = [_ScoredCheckpoint(info.step, info.time, values.get(info.step)) for info in checkpoints]
        return best.should_preserve(scored, context=context)


def find_checkpoint(path: str | os.PathLike[str], step: int | None = None) -> str:
    """Returns the msgpack file of a checkpoint in T5X's own layout.

    ``path`` is the file, its folder, or the folder of all checkpoints, of which ``step`` or the last is used.

    Raises:
        ValueError: there is none.
    """
    folder = os.fspath(path)
    if gfile.isdir(folder):
        step = latest_step(folder) if step is None else step
        folder = folder if step is None else get_checkpoint_dir(folder, step)
        file = os.path.join(folder, FILE_NAME)
    else:
        file = folder
    if not gfile.exists(file) or gfile.isdir(file):
        raise ValueError(f"{file} is not the file of a T5X checkpoint: {what_is_there(folder)}")
    return file


def load_t5x_checkpoint(
    path: str | os.PathLike[str],
    step: int | None = None,
    state_transformation_fns: Sequence[RestoreStateTransformationFn] = (),
    remap: bool = True,
    restore_dtype: Any = None,
    lazy_parameters: bool = False,
) -> dict[str, Any]:
    """Reads the checkpoint that ``find_checkpoint`` finds into nested dicts of NumPy arrays.

    ``state_transformation_fns``, which get no model, are applied unless ``remap`` is False. All leaves are returned in
    ``restore_dtype``, by default as saved; with ``lazy_parameters`` they are read on demand.

    Raises:
        ValueError: there is no such checkpoint, or it is in another layout.
    """
    file = CheckpointFile.read(find_checkpoint(path, step))
    state = transform_for_restore(file.state, {}, state_transformation_fns) if remap else file.state
    leaves = state_utils.flatten_state_dict(state, keep_empty_nodes=True)
    lazy = {name: _lazy_leaf(file, name, leaf, restore_dtype) for name, leaf in leaves.items()}
    if lazy_parameters:
        return traverse_util.unflatten_dict(lazy, sep="/")
    with ThreadPoolExecutor(_READERS) as readers:
        values = readers.map(lambda leaf: leaf.get() if isinstance(leaf, LazyArray) else leaf, lazy.values())
        return traverse_util.unflatten_dict(dict(zip(lazy, values, strict=True)), sep="/")


def _lazy_leaf(file: CheckpointFile, name: str, leaf: Any, dtype: Any) -> Any:
    if leaf is None or leaf is traverse_util.empty_node:
        return leaf
    if isinstance(leaf, Mapping):
        stored_as = dtype or _arrays.stored_dtype(leaf)
        return LazyThreadPoolArray(
            _arrays.stored_shape(leaf), stored_as, lambda: _arrays.read_array(file.folder, leaf, name, dtype)
        )
    value = np.asarray(leaf)
    return LazyThreadPoolArray(value.shape, value.dtype if dtype is None else jnp.dtype(dtype), lambda: value)


class DatasetCheckpointHandler(ocp.CheckpointHandler):
    """Saves the position of an input pipeline in files whose names begin with ``checkpoint_filename``."""

    def __init__(self, checkpoint_filename: str, should_write_dataset_ckpt: bool):
        self._checkpoint_filename = checkpoint_filename
        self._should_write_dataset_ckpt = should_write_dataset_ckpt

    def save(self, directory: epath.Path, args: DatasetArgs) -> None:
        """Writes the position of ``args.item``.

        Raises:
            ValueError: there is no iterator.
        """
        if not self._should_write_dataset_ckpt:
            return
        if args.item is None:
            raise ValueError(f"The dataset state cannot be saved to {directory}: DatasetArgs holds no iterator")
        folder = self._own_folder(directory)
        if folder != directory:
            folder.mkdir(parents=False, exist_ok=False)
        save_iterator(args.item, folder / self._checkpoint_filename)

    def restore(self, directory: epath.Path, args: DatasetArgs | None = None) -> Any:
        """Moves ``args.item`` to the saved position, and returns it.

        Raises:
            ValueError: there is no iterator, or nothing was written.
        """
        if not self._should_write_dataset_ckpt:
            return None
        if args is None or args.item is None:
            raise ValueError(f"The dataset state of {directory} cannot be restored: DatasetArgs holds no iterator")
        load_iterator(args.item, self._own_folder(directory) / self._checkpoint_filename)
        return args.item

    def _own_folder(self, directory: epath.Path) -> epath.Path:
        if jax.process_count() == 1:
            return directory
        return directory / f"process_{jax.process_index()}-of-{jax.process_count()}"


@ocp.args.register_with_handler(DatasetCheckpointHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class DatasetArgs(ocp.args.CheckpointArgs):
    """The ``tf.data`` or clu iterator whose position is saved or restored."""

    item: Any = None


@gin.configurable
class OrbaxCheckpointManagerInterface:
    """Saves and restores train states through ``orbax.checkpoint.CheckpointManager``, in the background.

    Arguments not listed here are those of ``Checkpointer``, and for metrics those of ``SaveBestCheckpointer``. As with
    T5X, ``save_dtype``, ``checkpoint_steps`` and ``keep_dataset_checkpoints`` are not used: parameters are saved in
    their own dtype, the train loop acts on the steps, and a dataset state goes with its checkpoint.

    Args:
        directory: folder of all checkpoints. If it does not exist, as for the path of a checkpoint to restore,
            its parent is used.
        restore_dtype: dtype that parameters, and replicated leaves such as the step, are restored in.
        keep: how many checkpoints to keep; None for all.
        period: steps between saves that are not forced.
        force_keep_period: keep the checkpoints whose steps are multiples of it.
        metric_name_to_monitor: keep the best checkpoints by this metric instead of the latest.

    Raises:
        ValueError: there is neither ``directory`` nor its parent.
    """

    def __init__(
        self,
        directory: str,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        dataset_iterator: Any = None,
        save_dtype: Any = None,
        restore_dtype: Any = None,
        keep: int | None = None,
        period: int | None = 1,
        checkpoint_steps: Sequence[int] | None = None,
        keep_dataset_checkpoints: int | None = None,
        force_keep_period: int | None = None,
        metric_name_to_monitor: str | None = None,
        metric_mode: str = "max",
        keep_checkpoints_without_metrics: bool = True,
    ):
        del save_dtype, checkpoint_steps, keep_dataset_checkpoints
        _dataset_state.check_iterator(dataset_iterator)
        self._train_state = train_state
        self._partitioner = partitioner
        self._dataset_iterator = dataset_iterator
        self._restore_dtype = restore_dtype
        layout = partitioner.get_data_layout()
        self._keeps_dataset = dataset_iterator is not None and layout.is_first_host_in_replica_set
        folder = _folder_of_checkpoints(os.fspath(directory))
        if metric_name_to_monitor is None:
            removal: dict[str, Any] = {"max_to_keep": keep, "keep_period": force_keep_period}
        else:
            policies: list[Any] = [
                _BestByTensorBoard(
                    directory=folder,
                    metric_name=metric_name_to_monitor,
                    mode=metric_mode,
                    keep=keep,
                    keep_without_metrics=keep_checkpoints_without_metrics,
                )
            ]
            if force_keep_period:
                policies.append(checkpoint_managers.EveryNSteps(force_keep_period))
            removal = {"preservation_policy": checkpoint_managers.AnyPreservationPolicy(policies)}
        self._manager = ocp.CheckpointManager(
            directory=folder,
            options=ocp.CheckpointManagerOptions(
                save_interval_steps=period or 1,
                step_prefix=get_checkpoint_prefix(),
                cleanup_tmp_directories=True,
                async_options=ocp.AsyncOptions(timeout_secs=_SAVE_TIMEOUT_SECONDS),
                **removal,
            ),
            item_handlers={
                _STATE: ocp.PyTreeCheckpointHandler(use_ocdbt=True),
                _DATASET: DatasetCheckpointHandler(_dataset_state.iterator_file_name(layout), self._keeps_dataset),
            },
        )

    @property
    def directory(self) -> epath.Path:
        """Folder of all checkpoints."""
        return self._manager.directory

    def all_steps(self) -> Sequence[int]:
        """Returns the steps that have a checkpoint, ascending."""
        return self._manager.all_steps()

    def latest_step(self) -> int | None:
        """Returns the last step that has a checkpoint, or None."""
        return self._manager.latest_step()

    def should_save(self, step: int) -> bool:
        """Returns whether a step would be saved without ``force``."""
        return self._manager.should_save(step)

    def wait_until_finished(self) -> None:
        """Waits for the checkpoint that is being written."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits for the checkpoint that is being written and ends the writer."""
        self._manager.close()

    def save(
        self,
        train_state: train_state_lib.TrainState,
        state_transformation_fns: Sequence[SaveStateTransformationFn] = (),
        force: bool = True,
    ) -> bool:
        """Begins to save a state under its step, after ``state_transformation_fns``; returns whether it does.

        ``force`` saves even if ``should_save`` returns False; T5X's train loop uses it, because it decides itself.
        """
        step = _step_from_train_state(train_state)
        if not force and not self.should_save(step):
            return False
        state, _ = _transform_for_save(train_state.state_dict(), self._parameter_infos(), state_transformation_fns)
        items = {_STATE: ocp.args.PyTreeSave(state), _DATASET: DatasetArgs(self._dataset_iterator)}
        return self._manager.save(step, args=ocp.args.Composite(**items), force=force)

    def _parameter_infos(self) -> Any:
        axes = self._partitioner.get_mesh_axes(self._train_state).state_dict()
        names = state_utils.get_name_tree(self._train_state.state_dict(), keep_empty_nodes=True)
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), self._train_state.state_dict())
        return jax.tree.map(
            lambda name, shape, spec: _ParameterInfo(name, shape, None, None, spec),
            names,
            shapes,
            axes,
            is_leaf=lambda leaf: isinstance(leaf, str),
        )

    def restore(
        self,
        step: int | None = None,
        path: str | None = None,
        fallback_state: Mapping[str, Any] | None = None,
        state_transformation_fns: Sequence[RestoreStateTransformationFn] = (),
        lazy_parameters: bool = False,
    ) -> train_state_lib.TrainState:
        """Restores the checkpoint of either a ``step`` or a ``path``, as ``Checkpointer.restore`` does.

        From T5X's own layout, the position of the input pipeline is not restored; from orbax's, all arrays are read at
        once.

        Raises:
            ValueError: there is no such checkpoint, it is of another format, lacks leaves or has other shapes.
        """
        if lazy_parameters:
            logging.warning("lazy_parameters is not possible for checkpoints in orbax layout: arrays are read at once")
        directory = os.fspath(self.directory)
        if path is not None and step is None:
            directory, step = get_step_from_checkpoint_dir(os.fspath(path))
        elif path is not None or step is None:
            raise ValueError(f"restore takes either step or path: step={step}, path={path!r}")
        folder = get_checkpoint_dir(directory, step)
        if _is_legacy(folder):
            legacy = Checkpointer(self._train_state, self._partitioner, directory, restore_dtype=self._restore_dtype)
            return legacy.restore(
                path=folder, fallback_state=fallback_state, state_transformation_fns=state_transformation_fns
            )
        state_folder = os.path.join(folder, _STATE)
        if not gfile.isdir(state_folder):
            raise ValueError(
                f"{folder} is not a checkpoint: it has no folder {_STATE!r}. "
                f"Steps in {directory}: {list(all_steps(directory))}"
            )
        reader = StateReader(
            folder=epath.Path(state_folder),
            mesh=self._partitioner.mesh,
            target=state_utils.flatten_state_dict(self._train_state.state_dict()),
            axes=state_utils.flatten_state_dict(self._partitioner.get_mesh_axes(self._train_state).state_dict()),
            restore_dtype=self._restore_dtype,
        )
        fallback = {} if fallback_state is None else state_utils.flatten_state_dict(fallback_state)
        planned = reader.plan(state_transformation_fns)
        reader.check(planned, fallback)
        items = {_STATE: reader.item(planned)}
        if self._keeps_dataset:
            items[_DATASET] = DatasetArgs(self._dataset_iterator)
        restored = self._manager.restore(step, args=ocp.args.Composite(**items), directory=directory)
        return self._train_state.restore_state(reader.complete(restored[_STATE], planned, fallback))

    def restore_from_tf_checkpoint(
        self, path_or_dir: str, strict: bool = True, translator: checkpoint_importer.CheckpointTranslator | None = None
    ) -> train_state_lib.TrainState:
        """Restores a T5 checkpoint of the TensorFlow code base, as ``Checkpointer`` does."""
        legacy = Checkpointer(
            self._train_state, self._partitioner, os.fspath(self.directory), restore_dtype=self._restore_dtype
        )
        return legacy.restore_from_tf_checkpoint(path_or_dir, strict=strict, translator=translator)


def _folder_of_checkpoints(directory: str) -> str:
    if gfile.isdir(directory):
        return directory
    parent = os.path.dirname(directory)
    if not gfile.isdir(parent) and "://" not in parent:
        raise ValueError(f"There is no folder for checkpoints: neither {directory!r} nor {parent!r} exists")
    return parent


def _is_legacy(folder: str) -> bool:
    """Returns whether a checkpoint is not in orbax layout: ``Checkpointer`` reads it or says why it does not."""
    if not gfile.exists(os.path.join(folder, "checkpoint")):
        return False
    kind = checkpoint_utils.detect_checkpoint_type(find_checkpoint(folder), expected=CheckpointTypes.ORBAX)
    return kind is not CheckpointTypes.ORBAX
