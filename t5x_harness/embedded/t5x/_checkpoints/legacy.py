"""T5X's own checkpoint layout: a msgpack file, and a zarr folder for each partitioned array."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from flax import serialization, traverse_util
from jax.experimental import multihost_utils
from t5x import checkpoint_importer, checkpoint_utils, partitioning, state_utils
from t5x import train_state as train_state_lib
from t5x._checkpoints import arrays, iterators, placing
from t5x._checkpoints.lazy import LazyArray, LazyThreadPoolArray
from t5x._checkpoints.legacy_file import CheckpointFile, describe_missing
from t5x._checkpoints.transformations import (
    RestoreStateTransformationFn,
    SaveStateTransformationFn,
    transform_for_restore,
    transform_for_save,
)
from t5x._shown_as import shown_as
from t5x.checkpoints_utils import (
    _TRAIN_DS_PREFIX,
    all_dataset_checkpoint_steps,
    all_steps,
    get_checkpoint_dir,
    latest_step,
)
from tensorflow.io import gfile

VERSION = 3
_READERS = 32


@shown_as("t5x.checkpoints")
class Checkpointer:
    """Saves and restores train states in T5X's own layout.

    Args:
        train_state: a state with the structure, shapes and dtypes of those to save and restore.
        partitioner: tells how arrays are divided.
        checkpoints_dir: folder of all checkpoints.
        dataset_iterator: an input pipeline whose place is kept too.
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
        iterators.check_iterator(dataset_iterator)
        self.checkpoints_dir, self.restore_dtype = checkpoints_dir, restore_dtype
        self.keep, self.keep_dataset_checkpoints = keep, keep_dataset_checkpoints
        self._train_state, self._partitioner = train_state, partitioner
        self._dataset_iterator, self._save_dtype = dataset_iterator, save_dtype
        layout = partitioner.get_data_layout()
        self._dataset_ckpt_name = iterators.iterator_file_name(layout)
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
            return arrays.ParameterInfo(name, tuple(leaf.shape), ts_spec=None, local_chunk_info=None)
        dtype = self._save_dtype if _is_parameter(name) and self._save_dtype is not None else leaf.dtype
        write_shape = placing.sharding_on(self._partitioner.mesh, axes).shard_shape(tuple(leaf.shape))
        return arrays.ParameterInfo(
            name,
            tuple(leaf.shape),
            ts_spec=arrays.new_spec(self.checkpoints_dir, name, leaf.shape, dtype, write_shape),
            local_chunk_info=self._partitioner.get_local_chunk_info(tuple(leaf.shape), axes),
            axes=axes,
        )

    def all_steps(self) -> Sequence[int]:
        """Returns the steps that have a checkpoint, ascending."""
        return all_steps(self.checkpoints_dir)

    def all_dataset_checkpoint_steps(self) -> Sequence[int]:
        """Returns the steps whose checkpoint holds the place of the input pipeline, ascending."""
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
        """Saves a state under its step; does nothing if that step has a checkpoint.

        Args:
            train_state: the state; lazy arrays in it are read one after another.
            state_transformation_fns: changes to make before, in order.
            concurrent_gb: the most gigabytes of arrays to hold in host memory at a time.
        """
        step = placing.step_of(train_state)
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

        state, infos = transform_for_save(train_state.state_dict(), self._parameter_infos, state_transformation_fns)
        written = self._write_arrays(tmp_dir, state, infos, concurrent_gb * 10**9)
        if self._writes_dataset:
            iterators.save_iterator(self._dataset_iterator, os.path.join(tmp_dir, self._dataset_ckpt_name))
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
        """Writes the arrays that have a folder of their own; returns what the msgpack file is to hold."""
        info_of = _flat(infos)
        written: dict[str, Any] = {}
        pending: list[tuple[list[Any], int]] = []
        for name, leaf in _flat(state).items():
            value = leaf.get() if isinstance(leaf, LazyArray) else leaf
            info = info_of.get(name)
            if isinstance(info, arrays.ParameterInfo) and info.ts_spec is not None:
                pending.append(arrays.write_array(tmp_dir, info.ts_spec, value))
                while len(pending) > 1 and sum(size for _, size in pending) > max_bytes:
                    _finish(pending.pop(0)[0])
                written[name] = info.ts_spec
            elif _is_parameter(name) and hasattr(value, "astype") and self._save_dtype is not None:
                written[name] = np.asarray(placing.get_local_data(value)).astype(jnp.dtype(self._save_dtype))
            else:
                written[name] = placing.get_local_data(value)
        for futures, _ in pending:
            _finish(futures)
        return traverse_util.unflatten_dict(written, sep="/")

    def _remove_old_checkpoints(self) -> None:
        steps = self.all_steps()
        for step in steps[: max(len(steps) - self.keep, 0)] if self.keep else ():
            checkpoint_utils.remove_checkpoint_dir(self._get_checkpoint_dir(step))

    def _remove_old_dataset_checkpoints(self) -> None:
        keep = self.keep_dataset_checkpoints
        steps = self.all_dataset_checkpoint_steps()
        for step in steps[: max(len(steps) - keep, 0)] if keep else ():
            checkpoint_utils.remove_dataset_checkpoint(self._get_checkpoint_dir(step), _TRAIN_DS_PREFIX)

    def restore(
        self,
        step: int | None = None,
        path: str | None = None,
        state_transformation_fns: Sequence[RestoreStateTransformationFn] = (),
        fallback_state: Mapping[str, Any] | None = None,
        lazy_parameters: bool = False,
    ) -> train_state_lib.TrainState:
        """Restores a state.

        Args:
            step: the step to restore; the last by default. Give this or ``path``.
            path: folder of a checkpoint, or the file ``checkpoint`` in it.
            state_transformation_fns: changes to make to what the checkpoint holds, in order.
            fallback_state: values for leaves that the checkpoint lacks.
            lazy_parameters: deliver arrays that are read when asked for; needs ``params_on_devices=False``.

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
        wanted = {name: leaf for name, leaf in _flat(target).items() if isinstance(infos[name], arrays.ParameterInfo)}
        missing = [name for name in wanted if name not in stored and name not in fallback]
        if missing:
            raise ValueError(describe_missing(file.path, missing, stored))

        def value_of(name: str) -> Any:
            if name not in stored:
                logging.warning("%s is not in checkpoint %s and starts from its initial value", name, file.path)
                return self._placed(fallback[name], infos[name])
            lazy = self._lazy(file, name, stored[name], wanted[name], infos[name])
            return lazy if lazy_parameters else lazy.get()

        with ThreadPoolExecutor(_READERS) as readers:
            values = dict(zip(wanted, readers.map(value_of, wanted), strict=True))
        if self._dataset_iterator is not None:
            iterators.load_iterator(self._dataset_iterator, os.path.join(file.folder, self._dataset_ckpt_name))
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

    def _lazy(
        self, file: CheckpointFile, name: str, stored: Any, expected: Any, info: arrays.ParameterInfo
    ) -> LazyArray:
        is_spec = isinstance(stored, Mapping)
        shape = arrays.stored_shape(stored) if is_spec else tuple(np.shape(stored))
        placing.check_shape(file.folder, name, shape, expected, exact=is_spec or _is_parameter(name))
        cast = self.restore_dtype if _is_parameter(name) else None
        stored_dtype = arrays.stored_dtype(stored) if is_spec else np.asarray(stored).dtype

        def read() -> Any:
            if is_spec and self._partitioner.params_on_devices:
                sharding = placing.sharding_on(self._partitioner.mesh, info.axes)
                return arrays.read_array(file.folder, stored, name, cast, sharding)
            value = arrays.read_array(file.folder, stored, name, cast) if is_spec else np.asarray(stored)
            return self._placed(value, info, cast)

        return LazyThreadPoolArray(shape, stored_dtype if cast is None else cast, read)

    def _placed(self, value: Any, info: arrays.ParameterInfo, dtype: Any = None) -> Any:
        if not self._partitioner.params_on_devices:
            return value if dtype is None else value.astype(jnp.dtype(dtype))
        return placing.place(value, placing.sharding_on(self._partitioner.mesh, info.axes), dtype)

    def restore_from_tf_checkpoint(
        self, path_or_dir: str, strict: bool = True, translator: checkpoint_importer.CheckpointTranslator | None = None
    ) -> train_state_lib.TrainState:
        """Restores a T5 checkpoint of the TensorFlow (Mesh TensorFlow) code base.

        Args:
            path_or_dir: a TensorFlow checkpoint, or a folder with one.
            strict: refuse variables that the model does not have.
            translator: how names are translated; as T5 and T5.1.1 need it by default.
        """
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
        """Saves a TensorFlow T5 checkpoint in T5X's layout, array by array.

        Args:
            path_or_dir: a TensorFlow checkpoint, or a folder with one.
            state_transformation_fns: changes to make before saving, in order.
            concurrent_gb: the most gigabytes to hold in memory at a time.
            translator: how names are translated.
        """
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
