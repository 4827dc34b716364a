"""Finding the checkpoint that a config means, and what fills its gaps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax.numpy as jnp
import tensorflow as tf
from absl import logging
from t5x import checkpoints
from t5x import train_state as train_state_lib
from t5x._utils.checkpoint_configs import RestoreCheckpointConfig
from tensorflow.io import gfile


class Restorer(Protocol):
    """What reads T5X and TensorFlow checkpoints: a checkpointer, or orbax's manager."""

    def restore(self, path: str, **kwargs: Any) -> train_state_lib.TrainState:
        """Reads a T5X checkpoint."""
        ...

    def restore_from_tf_checkpoint(self, path: str, strict: bool = True) -> train_state_lib.TrainState:
        """Reads a checkpoint of the Mesh TensorFlow T5."""
        ...


def restore_path(
    restorer: Restorer,
    path: str,
    *,
    strict: bool,
    state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn],
    **kwargs: Any,
) -> train_state_lib.TrainState:
    """Reads one checkpoint, of T5X or of TensorFlow.

    Args:
        restorer: Reads it.
        path: The checkpoint. It is TensorFlow's if a file ``<path>.index`` exists.
        strict: For TensorFlow's: it must hold all of the optimizer state.
        state_transformation_fns: For T5X's.
        **kwargs: Further arguments of ``restorer.restore``.

    Raises:
        ValueError: Transformations are asked of a TensorFlow checkpoint.
    """
    if not gfile.exists(f"{path}.index"):
        logging.info("Restoring T5X checkpoint %s", path)
        return restorer.restore(path=path, state_transformation_fns=state_transformation_fns, **kwargs)
    if state_transformation_fns:
        raise ValueError(
            f"{path} is a TensorFlow checkpoint, to which `state_transformation_fns` and `assignment_map` do not "
            "apply. Leave them out, or convert the checkpoint to T5X's format first."
        )
    logging.info("Restoring TensorFlow checkpoint %s", path)
    return restorer.restore_from_tf_checkpoint(path, strict=strict)


def restore(
    checkpoint_manager: checkpoints.OrbaxCheckpointManagerInterface,
    paths: Sequence[str] | None,
    restore_cfg: RestoreCheckpointConfig | None,
    fallback_state: Mapping[str, Any] | None = None,
) -> train_state_lib.TrainState | Sequence[train_state_lib.TrainState] | None:
    """Reads checkpoints through orbax's manager.

    Args:
        checkpoint_manager: Reads them.
        paths: Where they are.
        restore_cfg: How to read them.
        fallback_state: A state dict for what a checkpoint lacks after ``restore_cfg``'s transformations.

    Returns:
        The train state if there is one path, otherwise one for each (a TensorFlow checkpoint ends the list and is
        returned alone); None without paths or config.
    """
    if restore_cfg is None or paths is None:
        return None
    states = []
    for path in paths:
        state = restore_path(
            checkpoint_manager,
            path,
            strict=restore_cfg.strict,
            state_transformation_fns=restore_cfg.state_transformation_fns,
            fallback_state=fallback_state,
        )
        if gfile.exists(f"{path}.index"):
            return state
        states.append(state)
    return states[0] if len(states) == 1 else states


def get_first_valid_restore_config_and_paths(
    restore_cfgs: Sequence[RestoreCheckpointConfig],
) -> tuple[RestoreCheckpointConfig | None, Sequence[str]]:
    """Chooses the first config that has something to restore.

    Args:
        restore_cfgs: In order of preference. One of mode 'specific' is taken unseen; of the folders of the others the
            first that holds checkpoints is taken.

    Returns:
        The config and its checkpoints, ascending by step; ``(None, [])`` if there is none.

    Raises:
        ValueError: A folder to look for checkpoints in is none.
    """
    for cfg in restore_cfgs:
        paths = [cfg.path] if isinstance(cfg.path, str) else cfg.path
        if cfg.mode == "specific":
            return cfg, paths
        for folder in paths:
            if not gfile.isdir(folder):
                raise ValueError(
                    f"`RestoreCheckpointConfig.path` must be a directory with mode {cfg.mode!r}, but {folder!r} is "
                    "not: name the folder that holds the checkpoints, or set mode to 'specific' to name one of them."
                )
            found = _checkpoints_in(folder)
            if found:
                return cfg, found[-1:] if cfg.mode == "latest" else found
            logging.info("No checkpoints in %s", folder)
    return None, []


def _checkpoints_in(folder: str) -> Sequence[str]:
    tensorflow_state = tf.train.get_checkpoint_state(folder)
    if tensorflow_state:
        return list(tensorflow_state.all_model_checkpoint_paths)
    return [os.path.join(folder, f"checkpoint_{step}") for step in checkpoints.all_steps(folder)]


def get_fallback_state(
    restore_cfg: RestoreCheckpointConfig | None,
    init_fn: Callable[[jnp.ndarray], Mapping[str, Any]],
    init_rng: jnp.ndarray | None,
) -> Mapping[str, Any] | None:
    """Initialises the state that fills a checkpoint's gaps, if the config wants them filled.

    Args:
        restore_cfg: Says so with ``fallback_to_scratch``.
        init_fn: Makes a state dict from a PRNG key.
        init_rng: The key.

    Returns:
        The state dict, or None.

    Raises:
        ValueError: Gaps are to be filled, but nothing can make one, or there is no key.
    """
    if restore_cfg is None or not restore_cfg.fallback_to_scratch:
        return None
    if not restore_cfg.state_transformation_fns:
        raise ValueError(
            "`RestoreCheckpointConfig.fallback_to_scratch` needs `state_transformation_fns` or an `assignment_map`: "
            "without one every parameter must be in the checkpoint."
        )
    if init_rng is None:
        raise ValueError(
            "`RestoreCheckpointConfig.fallback_to_scratch` needs an `init_rng` to initialise parameters with; "
            "evaluation and inference have none."
        )
    return init_fn(init_rng)
