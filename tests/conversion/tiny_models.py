"""Tiny checkpoints of each kind, with random parameters in the shapes of T5X's networks."""

import dataclasses
import functools
import importlib
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from flax import traverse_util

from t5x_harness.standins.checkpoints import write_legacy_checkpoint

STEP = 1000
_SIZES = {
    "vocab_size": 300,
    "emb_dim": 16,
    "num_heads": 3,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
    "head_dim": 4,
    "mlp_dim": 24,
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A network of the T5 family.

    Attributes:
      network: T5X's name for the network.
      config: the settings in which it differs from the default.
      model_type: its model type in transformers.
    """

    network: str = "t5"
    config: tuple[tuple[str, Any], ...] = ()
    model_type: str = "t5"

    @property
    def settings(self) -> dict[str, Any]:
        return {"mlp_activations": ("gelu", "linear"), **_SIZES, **dict(self.config)}


KINDS = {
    "t5_1_0": Kind(config=(("mlp_activations", ("relu",)), ("logits_via_embedding", True))),
    "t5_1_1": Kind(),
    "mt5": Kind(model_type="mt5"),
    "umt5": Kind("scalable_t5", model_type="umt5"),
    "umt5_layers_first": Kind("scalable_t5", (("param_scan_axis", 0),), "umt5"),
    "umt5_not_scanned": Kind("scalable_t5", (("scan_layers", False),), "umt5"),
    "umt5_tied": Kind("scalable_t5", (("logits_via_embedding", True),), "umt5"),
    "byt5": Kind(config=(("vocab_size", 384), ("num_encoder_layers", 4), ("num_decoder_layers", 1))),
}


@functools.cache
def variables_of(kind: str) -> Any:
    """Returns the shapes of the variables of T5X's own network."""
    about = KINDS[kind]
    network = importlib.import_module(f"t5x.examples.{about.network}.network")
    module = network.Transformer(network.T5Config(**about.settings))
    tokens = np.ones((1, 2), np.int32)
    make = functools.partial(module.init, enable_dropout=False)
    return jax.eval_shape(make, jax.random.key(0), tokens, tokens, tokens)


def shapes_of(kind: str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the network's parameters by name."""
    flat = traverse_util.flatten_dict(variables_of(kind)["params"], sep="/")
    return {name: tuple(leaf.shape) for name, leaf in flat.items()}


def parameters_of(kind: str) -> dict[str, np.ndarray[Any, Any]]:
    """Returns parameters that are large enough for every part of the network to affect its logits."""
    random = np.random.default_rng(len(kind))
    return {
        name: (random.standard_normal(shape) * 0.3 + ("scale" in name)).astype(np.float32)
        for name, shape in shapes_of(kind).items()
    }


def write(folder: Path, kind: str, *, change: Any = None, dtype: Any = None) -> Path:
    """Writes a checkpoint in T5X's older layout, with some optimizer state.

    Args:
      folder: the folder in which ``checkpoint_1000`` is written.
      kind: one of ``KINDS``.
      change: a function that changes the parameters, which it gets by name; None to keep them.
      dtype: the element type of the parameters; None for float32.
    """
    arrays = parameters_of(kind)
    if dtype is not None:
        arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    if change is not None:
        change(arrays)
    state: dict[str, Any] = {f"target/{name}": array for name, array in arrays.items()}
    state["state/step"] = np.int32(STEP)
    state["state/param_states/decoder/decoder_norm/scale/v"] = np.zeros((4,), np.float32)
    place = folder / f"checkpoint_{STEP}"
    write_legacy_checkpoint(place, state, [name for name in state if name.endswith("kernel")])
    return place


BFLOAT16 = ml_dtypes.bfloat16
