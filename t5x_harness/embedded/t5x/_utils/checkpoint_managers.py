"""Making the object that saves and restores a run's checkpoints: T5X's own manager, or orbax's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from absl import logging
from t5x import checkpoints, partitioning
from t5x import train_state as train_state_lib
from t5x._utils.checkpoint_configs import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x._utils.legacy_checkpoints import DatasetIterator, LegacyCheckpointManager
from t5x._utils.restoring import get_fallback_state, restore
from t5x._utils.train_state_initializer import TrainStateInitializer

# Settings of checkpointers that rank checkpoints by a metric; orbax's manager takes them under the same names.
_RANKING_SETTINGS = (
    "metric_name_to_monitor",
    "metric_mode",
    "keep_checkpoints_without_metrics",
    "force_keep_period",
)


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
            "`checkpoint_manager_cls` must be the same in `SaveCheckpointConfig` and `RestoreCheckpointConfig`; got "
            f"{named or 'neither of the two configs'}."
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
    restore_checkpoint_cfg: RestoreCheckpointConfig | None,
    restore_path: str | None,
    fallback_init_rng: jnp.ndarray | None,
    save_checkpoint_cfg: SaveCheckpointConfig | None = None,
    model_dir: str | None = None,
    ds_iter: DatasetIterator | None = None,
    use_orbax: bool = False,
) -> tuple[train_state_lib.TrainState | None, LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface]:
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
    common: dict[str, Any] = {
        "save_cfg": save_checkpoint_cfg,
        "restore_cfg": restore_checkpoint_cfg,
        "partitioner": partitioner,
        "ds_iter": ds_iter,
        "model_dir": model_dir or (restore_checkpoint_cfg and restore_checkpoint_cfg.path),
    }
    manager: LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface
    restore_fn: Callable[..., Any]
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
