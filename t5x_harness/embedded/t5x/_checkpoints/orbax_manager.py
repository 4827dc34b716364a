"""Checkpoints in orbax layout, the one that T5X writes by default."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import jax
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint import checkpoint_managers
from t5x import checkpoint_importer, checkpoint_utils, partitioning, state_utils
from t5x import train_state as train_state_lib
from t5x._checkpoints import iterators, placing
from t5x._checkpoints.arrays import ParameterInfo
from t5x._checkpoints.best import BestByTensorBoard
from t5x._checkpoints.legacy import Checkpointer
from t5x._checkpoints.legacy_file import find_checkpoint
from t5x._checkpoints.orbax_items import DatasetArgs, DatasetCheckpointHandler
from t5x._checkpoints.orbax_restore import StateReader
from t5x._checkpoints.transformations import (
    RestoreStateTransformationFn,
    SaveStateTransformationFn,
    transform_for_save,
)
from t5x._shown_as import shown_as
from t5x.checkpoint_utils import CheckpointTypes
from t5x.checkpoints_utils import all_steps, get_checkpoint_dir, get_checkpoint_prefix, get_step_from_checkpoint_dir
from tensorflow.io import gfile

_STATE = "state"
_DATASET = "dataset"
_SAVE_TIMEOUT_SECONDS = 600


@gin.configurable
@shown_as("t5x.checkpoints")
class OrbaxCheckpointManagerInterface:
    """Saves and restores train states through ``orbax.checkpoint.CheckpointManager``, in the background.

    Args:
        directory: folder of all checkpoints. For one that does not exist, such as the path of a checkpoint to restore,
            its parent is taken.
        train_state: a state with the structure, shapes and dtypes of those to save and restore.
        partitioner: tells how arrays are divided.
        dataset_iterator: an input pipeline whose place is kept too.
        save_dtype: not used: as with T5X, parameters are saved in their own dtype.
        restore_dtype: dtype that parameters, and replicated leaves such as the step, are restored in.
        keep: how many checkpoints to keep; None for all.
        period: steps between saves that are not forced.
        checkpoint_steps: not used here; T5X' train loop acts on it.
        keep_dataset_checkpoints: not used here; a dataset state goes with its checkpoint.
        force_keep_period: keep the checkpoints of steps that this divides.
        metric_name_to_monitor: ``run/tag`` in TensorBoard files: keep the best by it instead of the latest.
        metric_mode: ``max`` or ``min``: which values are the best.
        keep_checkpoints_without_metrics: keep those that have no value of the metric too.

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
        iterators.check_iterator(dataset_iterator)
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
                BestByTensorBoard(
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
                _DATASET: DatasetCheckpointHandler(iterators.iterator_file_name(layout), self._keeps_dataset),
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
        """Returns whether a save that is not forced would be done at a step."""
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
        """Begins to save a state under its step.

        Args:
            train_state: the state.
            state_transformation_fns: changes to make before, in order.
            force: save even where :meth:`should_save` says no, as T5X' train loop, which decides itself, wants it.

        Returns:
            Whether a checkpoint is being saved.
        """
        step = placing.step_of(train_state)
        if not force and not self.should_save(step):
            return False
        state, _ = transform_for_save(train_state.state_dict(), self._parameter_infos(), state_transformation_fns)
        items = {_STATE: ocp.args.PyTreeSave(state), _DATASET: DatasetArgs(self._dataset_iterator)}
        return self._manager.save(step, args=ocp.args.Composite(**items), force=force)

    def _parameter_infos(self) -> Any:
        axes = self._partitioner.get_mesh_axes(self._train_state).state_dict()
        names = state_utils.get_name_tree(self._train_state.state_dict(), keep_empty_nodes=True)
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), self._train_state.state_dict())
        return jax.tree.map(
            lambda name, shape, spec: ParameterInfo(name, shape, None, None, spec),
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
        """Restores a state; a checkpoint in T5X's own layout too, without the place of the input pipeline.

        Args:
            step: the step to restore. Give this or ``path``.
            path: folder of a checkpoint, anywhere.
            fallback_state: values for leaves that the checkpoint lacks.
            state_transformation_fns: changes to make to what the checkpoint holds, in order.
            lazy_parameters: not possible in orbax layout; arrays are read at once.

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
        """Restores a T5 checkpoint of the TensorFlow (Mesh TensorFlow) code base.

        Args:
            path_or_dir: a TensorFlow checkpoint, or a folder with one.
            strict: refuse variables that the model does not have.
            translator: how names are translated; as T5 and T5.1.1 need it by default.
        """
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
    """Whether a checkpoint is in T5X's own layout.

    Raises:
        ValueError: it is of TensorFlow.
    """
    if not gfile.exists(os.path.join(folder, "checkpoint")):
        return False
    file = find_checkpoint(folder)
    kind = checkpoint_utils.detect_checkpoint_type(file, expected=CheckpointTypes.ORBAX)
    if kind is CheckpointTypes.T5X_TF:
        raise ValueError(f"{file} is of a TensorFlow checkpoint; restore it with restore_from_tf_checkpoint")
    return kind is CheckpointTypes.T5X
