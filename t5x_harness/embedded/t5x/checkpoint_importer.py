"""Checkpoints of the TensorFlow (Mesh TensorFlow) T5 code base, read into T5X's structure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from flax import traverse_util
from t5x._checkpoints.lazy import LazyArray, LazyAwaitableArray, LazyThreadPoolArray
from t5x._checkpoints.tf_names import CheckpointTranslator, t5_translator

__all__ = [
    "CheckpointTranslator",
    "LazyArray",
    "LazyAwaitableArray",
    "LazyThreadPoolArray",
    "load_tf_ckpt",
    "restore_from_t5_checkpoint",
]

_FIRST_LAYER_BIAS = re.compile(r"layers_(\d+)/relpos_bias")


def load_tf_ckpt(path: str | os.PathLike[str]) -> dict[str, LazyArray]:
    """Returns the variables of a TensorFlow checkpoint, to be read when asked for.

    Args:
        path: the checkpoint without its suffixes, or a folder with one.

    Raises:
        ValueError: there is no such checkpoint.
    """
    try:
        reader = tf.train.load_checkpoint(os.fspath(path))
    except (ValueError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{path} is not a TensorFlow checkpoint: {error}") from error
    dtypes = reader.get_variable_to_dtype_map()

    def lazy(name: str, shape: Sequence[int]) -> LazyArray:
        return LazyThreadPoolArray(shape, dtypes[name].as_numpy_dtype, lambda: np.asarray(reader.get_tensor(name)))

    return {name: lazy(name, shape) for name, shape in reader.get_variable_to_shape_map().items()}


def restore_from_t5_checkpoint(
    state_dict: Mapping[str, Any],
    path: str | os.PathLike[str],
    lazy_parameters: bool = False,
    strict: bool = True,
    translator: CheckpointTranslator | None = None,
) -> Mapping[str, Any]:
    """Reads a TensorFlow T5 checkpoint as the state of a T5X model with Adafactor.

    Args:
        state_dict: the state of the model, for names and shapes.
        path: the checkpoint without its suffixes, or a folder with one.
        lazy_parameters: deliver arrays that are read when asked for.
        strict: refuse variables that the model does not have.
        translator: how names are translated; as T5 and T5.1.1 need it by default.

    Returns:
        A nested dict like ``state_dict``.

    Raises:
        ValueError: variables are unknown, missing, or of another shape.
    """
    translated = (translator or t5_translator()).apply(load_tf_ckpt(path))
    leaves = _share_position_bias(translated | _unused_moments(translated))
    model = traverse_util.flatten_dict(state_dict, sep="/")
    extra = sorted(leaves.keys() - model.keys())
    if extra and strict:
        raise ValueError(
            f"TensorFlow checkpoint {path} has {len(extra)} leaves that the model has not: {', '.join(extra[:10])}. "
            "Leave them out with strict=False (RestoreCheckpointConfig.strict = False)"
        )
    missing = sorted(model.keys() - leaves.keys())
    if missing:
        raise ValueError(
            f"TensorFlow checkpoint {path} lacks {len(missing)} leaves of the model: {', '.join(missing[:10])}"
        )
    for name, expected in model.items():
        if tuple(leaves[name].shape) != tuple(expected.shape):
            raise ValueError(
                f"{name} has shape {tuple(leaves[name].shape)} in TensorFlow checkpoint {path} and "
                f"{tuple(expected.shape)} in the model"
            )
    state = traverse_util.unflatten_dict({name: leaves[name] for name in model}, sep="/")
    if lazy_parameters:
        return state
    return jax.tree.map(lambda leaf: leaf.get() if isinstance(leaf, LazyArray) else leaf, state)


def _unused_moments(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The moments that Adafactor keeps as placeholders in T5X and TensorFlow did not write."""
    unused: dict[str, np.ndarray] = {}
    for name in leaves:
        if not name.startswith("target/"):
            continue
        moments = "state/param_states/" + name.removeprefix("target/")
        placeholders = ["m"]
        if f"{moments}/v" in leaves:
            placeholders += ["v_row", "v_col"]
        elif f"{moments}/v_row" in leaves:
            placeholders += ["v"]
        unused |= {f"{moments}/{moment}": np.zeros((1,), np.float32) for moment in placeholders}
    return unused


def _share_position_bias(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Lifts relative position biases out of the first layer, if only that one has them: the layers share them."""
    layers = {int(match.group(1)) for match in map(_FIRST_LAYER_BIAS.search, leaves) if match}
    if max(layers, default=0) > 0:
        return dict(leaves)
    return {_FIRST_LAYER_BIAS.sub("relpos_bias", name): leaf for name, leaf in leaves.items()}
