"""T5X's own checkpointers behind orbax's interfaces: what a run uses by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import clu.data
import jax.numpy as jnp
import orbax.checkpoint
import tensorflow as tf
from t5x import checkpoints, partitioning
from t5x import train_state as train_state_lib
from t5x._utils.checkpoint_configs import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x._utils.restoring import restore_path

DatasetIterator: TypeAlias = tf.data.Iterator | clu.data.dataset_iterator.DatasetIterator


class LegacyCheckpointer(orbax.checkpoint.Checkpointer):
    """A pair of T5X checkpointers, one to save and one to restore, behind orbax's interface."""

    def __init__(
        self,
        *,
        save_checkpointer: checkpoints.Checkpointer | None = None,
        restore_checkpointer: checkpoints.Checkpointer,
        strict: bool | None = False,
    ) -> None:
        self._save_checkpointer = save_checkpointer
        self._restore_checkpointer = restore_checkpointer
        self._strict = strict

    def save(
        self,
        path: str,
        item: train_state_lib.TrainState,
        force: bool = False,
        custom_metadata: dict[str, Any] | None = None,
        state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = (),
        *,
        concurrent_gb: int = 128,
    ) -> None:
        """Saves a train state in the checkpointer's folder.

        Args:
            path: Not used: the checkpointer knows its folder and takes the step from the state.
            item: The train state.
            force: Not used.
            custom_metadata: Not used.
            state_transformation_fns: Applied in order to the state before it is written.
            concurrent_gb: About how many gigabytes to have in memory at once.

        Raises:
            ValueError: There is no checkpointer to save with.
        """
        del path, force, custom_metadata
        if self._save_checkpointer is None:
            raise ValueError("Can't save checkpoints: this run has no `SaveCheckpointConfig` (CheckpointConfig.save).")
        self._save_checkpointer.save(item, state_transformation_fns, concurrent_gb=concurrent_gb)

    def restore(
        self,
        path: str,
        item: train_state_lib.TrainState | None = None,
        state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn] = (),
        fallback_state: Mapping[str, Any] | None = None,
        lazy_parameters: bool = False,
    ) -> train_state_lib.TrainState:
        """Restores a train state from a checkpoint of T5X or TensorFlow.

        Args:
            path: The checkpoint.
            item: Not used: the checkpointer knows the shape of the state.
            state_transformation_fns: Applied in order to the state that was read.
            fallback_state: A state dict for what the checkpoint lacks after the transformations.
            lazy_parameters: Leave parameters as LazyArrays.

        Returns:
            The train state.

        Raises:
            ValueError: Transformations are asked of a TensorFlow checkpoint.
        """
        del item
        return restore_path(
            self._restore_checkpointer,
            path,
            strict=bool(self._strict),
            state_transformation_fns=state_transformation_fns,
            fallback_state=fallback_state,
            lazy_parameters=lazy_parameters,
        )


class LegacyCheckpointManager(orbax.checkpoint.CheckpointManager):
    """T5X's checkpointers behind the interface of orbax's manager."""

    def __init__(
        self,
        *,
        save_cfg: SaveCheckpointConfig | None,
        restore_cfg: RestoreCheckpointConfig | None,
        train_state_shape: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        ds_iter: DatasetIterator | None = None,
        model_dir: str | None = None,
    ) -> None:
        """Makes the checkpointers.

        Args:
            save_cfg: How to save; None if nothing is to be saved.
            restore_cfg: How to restore; None if nothing is to be restored.
            train_state_shape: A train state with a ``jax.ShapeDtypeStruct`` for each leaf.
            partitioner: Where the arrays are to lie.
            ds_iter: The input pipeline whose state goes along, where the configs say so.
            model_dir: The folder to save in.

        Raises:
            ValueError: The input pipeline's state is to be saved, but there is no pipeline.
        """
        common = {"train_state": train_state_shape, "partitioner": partitioner}
        saver = restorer = None
        if save_cfg is not None:
            if save_cfg.save_dataset and ds_iter is None:
                raise ValueError(
                    "`SaveCheckpointConfig.save_dataset` is set, but there is no dataset iterator to save."
                )
            saver = save_cfg.checkpointer_cls(
                **common,
                checkpoints_dir=model_dir,
                dataset_iterator=ds_iter if save_cfg.save_dataset else None,
                save_dtype=save_cfg.dtype,
                keep=save_cfg.keep,
                keep_dataset_checkpoints=save_cfg.keep_dataset_checkpoints,
            )
        if restore_cfg is not None:
            restorer = restore_cfg.checkpointer_cls(
                **common,
                checkpoints_dir="",  # only for saving
                dataset_iterator=ds_iter if restore_cfg.restore_dataset else None,
                restore_dtype=jnp.dtype(restore_cfg.dtype) if restore_cfg.dtype else None,
            )
        self._checkpointer = LegacyCheckpointer(
            save_checkpointer=saver,
            restore_checkpointer=restorer,
            strict=restore_cfg is not None and restore_cfg.strict,
        )

    def wait_until_finished(self) -> None:
        """Returns at once: saving is done when :meth:`save` returns."""

    def close(self) -> None:
        """Has nothing to release."""

    def save(
        self,
        train_state: train_state_lib.TrainState,
        state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = (),
    ) -> None:
        """Saves a train state under its step.

        Args:
            train_state: The train state.
            state_transformation_fns: Applied in order to the state before it is written.
        """
        self._checkpointer.save("", train_state, state_transformation_fns=state_transformation_fns)

    def restore(
        self,
        paths: Sequence[str] | None,
        restore_cfg: RestoreCheckpointConfig | None = None,
        fallback_state: Mapping[str, Any] | None = None,
    ) -> train_state_lib.TrainState | Sequence[train_state_lib.TrainState] | None:
        """Restores checkpoints.

        Args:
            paths: Where they are.
            restore_cfg: How to read them.
            fallback_state: A state dict for what a checkpoint lacks after ``restore_cfg``'s transformations.

        Returns:
            The train state if there is one path, otherwise one for each; None without paths or config.
        """
        if restore_cfg is None or paths is None:
            return None
        states = [
            self._checkpointer.restore(
                path, state_transformation_fns=restore_cfg.state_transformation_fns, fallback_state=fallback_state
            )
            for path in paths
        ]
        return states[0] if len(states) == 1 else states
