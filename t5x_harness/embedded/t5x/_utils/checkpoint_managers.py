"""One object that saves and restores a run's checkpoints: T5X's own manager, or orbax's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import clu.data
import jax.numpy as jnp
import orbax.checkpoint
import tensorflow as tf
from absl import logging

from t5x import checkpoints, partitioning
from t5x import train_state as train_state_lib
from t5x._utils.checkpoint_configs import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x._utils.restoring import get_fallback_state, restore, restore_path
from t5x._utils.train_state_initializer import TrainStateInitializer

DatasetIterator = tf.data.Iterator | clu.data.dataset_iterator.DatasetIterator
# Settings of checkpointers that rank checkpoints by a metric; orbax's manager takes them under the same names.
_RANKING_SETTINGS = (
    "metric_name_to_monitor",
    "metric_mode",
    "keep_checkpoints_without_metrics",
    "force_keep_period",
)


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
        """Saves a train state where the checkpointer was told to.

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
            strict=self._strict,
            state_transformation_fns=state_transformation_fns,
            fallback_state=fallback_state,
            lazy_parameters=lazy_parameters,
        )


class LegacyCheckpointManager(orbax.checkpoint.CheckpointManager):
    """T5X's checkpointers behind the interface of orbax's manager; what a run uses by default."""

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
                raise ValueError("`SaveCheckpointConfig.save_dataset` is set, but there is no dataset iterator to save.")
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


def create_orbax_checkpoint_manager(
    *,
    save_cfg: SaveCheckpointConfig | None = None,
    restore_cfg: RestoreCheckpointConfig | None = None,
    train_state: train_state_lib.TrainState,
    partitioner: partitioning.BasePartitioner,
    ds_iter: DatasetIterator | None = None,
    model_dir: str | None = None,
) -> checkpoints.OrbaxCheckpointManagerInterface:
    """Makes the manager that ``checkpoint_manager_cls`` of the configs names.

    Args:
        save_cfg: How to save; None if nothing is to be saved.
        restore_cfg: How to restore; None if nothing is to be restored.
        train_state: A train state with a ``jax.ShapeDtypeStruct`` for each leaf.
        partitioner: Where the arrays are to lie.
        ds_iter: The input pipeline whose state goes along, where a config says so.
        model_dir: The folder to save in.

    Raises:
        ValueError: There is no config at all, or the two name different managers.
    """
    cfgs = [cfg for cfg in (save_cfg, restore_cfg) if cfg is not None]
    managers = {cfg.checkpoint_manager_cls for cfg in cfgs}
    if len(managers) != 1:
        named = " and ".join(sorted(getattr(manager, "__qualname__", repr(manager)) for manager in managers))
        raise ValueError(
            "`SaveCheckpointConfig.checkpoint_manager_cls` and `RestoreCheckpointConfig.checkpoint_manager_cls` must be "
            f"the same; got {named or 'neither of the two configs'}."
        )
    with_dataset = any(
        cfg.save_dataset if isinstance(cfg, SaveCheckpointConfig) else cfg.restore_dataset for cfg in cfgs
    )
    ranking = next(filter(None, (_ranking_settings(cfg.checkpointer_cls) for cfg in cfgs)), {})
    return managers.pop()(
        directory=model_dir,
        train_state=train_state,
        partitioner=partitioner,
        dataset_iterator=ds_iter if with_dataset else None,
        save_dtype=save_cfg.dtype if save_cfg else None,
        restore_dtype=restore_cfg.dtype if restore_cfg else None,
        keep=save_cfg.keep if save_cfg else None,
        period=save_cfg.period if save_cfg else None,
        **ranking,
    )


def _ranking_settings(checkpointer_cls: checkpoints.CheckpointerConstructor) -> Mapping[str, Any]:
    """The ranking settings that a ``functools.partial`` of a checkpointer carries or defaults to."""
    if isinstance(checkpointer_cls, functools.partial):
        parameters = inspect.signature(checkpointer_cls).parameters
        return {
            name: parameters[name].default
            for name in _RANKING_SETTINGS
            if name in parameters and parameters[name].default is not inspect.Parameter.empty
        }
    if inspect.isclass(checkpointer_cls) and issubclass(checkpointer_cls, checkpoints.SaveBestCheckpointer):
        logging.warning(
            "%s is given as a class, whose ranking settings the orbax manager does not see: every checkpoint counts "
            "the same. Wrap it in functools.partial to rank by a metric.",
            checkpointer_cls.__qualname__,
        )
    return {}


def create_checkpoint_manager_and_restore(
    train_state_initializer: TrainStateInitializer,
    partitioner: partitioning.BasePartitioner,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    restore_path: str | None,
    fallback_init_rng: jnp.ndarray | None,
    save_checkpoint_cfg: SaveCheckpointConfig | None = None,
    model_dir: str | None = None,
    ds_iter: DatasetIterator | None = None,
    use_orbax: bool = False,
) -> tuple[
    train_state_lib.TrainState | None, LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface
]:
    """Makes a checkpoint manager and restores the checkpoint to start from, if there is one.

    Args:
        train_state_initializer: Knows the shape of the train state, and fills gaps.
        partitioner: Where the arrays are to lie.
        restore_checkpoint_cfg: How to restore.
        restore_path: The checkpoint to start from, or None.
        fallback_init_rng: PRNG key for parameters that the checkpoint lacks, with ``fallback_to_scratch``.
        save_checkpoint_cfg: How to save; None if nothing is to be saved.
        model_dir: The folder to save in; ``restore_checkpoint_cfg.path`` if not given.
        ds_iter: The input pipeline whose state goes along, where the configs say so.
        use_orbax: Make orbax's manager instead of T5X's own.

    Returns:
        The train state, or None if there was nothing to restore; and the manager.

    Raises:
        ValueError: There is a restore config but no path, or the settings contradict each other (see the functions
            that this calls).
    """
    train_state_shape = train_state_initializer.global_train_state_shape
    common = {
        "save_cfg": save_checkpoint_cfg,
        "restore_cfg": restore_checkpoint_cfg,
        "partitioner": partitioner,
        "ds_iter": ds_iter,
        "model_dir": model_dir or restore_checkpoint_cfg.path,
    }
    manager: LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface
    if use_orbax:
        manager = create_orbax_checkpoint_manager(train_state=train_state_shape, **common)
        restore_fn = functools.partial(restore, manager)
    else:
        manager = LegacyCheckpointManager(train_state_shape=train_state_shape, **common)
        restore_fn = manager.restore
    fallback_state = get_fallback_state(
        restore_checkpoint_cfg, lambda rng: train_state_initializer.from_scratch(rng).state_dict(), fallback_init_rng
    )
    if restore_checkpoint_cfg is None:
        return None, manager
    if not isinstance(restore_path, str) or not restore_path:
        raise ValueError(
            f"Expected one checkpoint to restore, but `RestoreCheckpointConfig.path` is {restore_path!r}: name one, or "
            "leave the restore config out."
        )
    return restore_fn([restore_path], restore_checkpoint_cfg, fallback_state), manager
