"""A lower bound of a model's memory, from its bound sizes alone: a huge number of layers cannot even be traced."""

from __future__ import annotations

from t5x_harness.findings.tables import Bytes
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.model_sizes import HEAD_DIM, HEADS, LAYERS, MLP, WIDTH, bound_integers
from t5x_harness.slices.slice import Slice

_TRACED = 1000
"""Up to so many layers, the model itself is traced, which says more."""

_BYTES = 4
"""The size of a parameter; T5X keeps the master copy in float32."""


def too_deep(config: GinConfig, slice_: Slice) -> tuple[BindingKey, str] | None:
    """Returns the binding of a number of layers whose parameters cannot fit the devices of a slice, and what is wrong.

    The bound counts the least that a layer can hold: a vector of the model's width, and the matrices of attention and
    MLP whose sizes are bound.
    """
    width, mlp, heads, head_dim = (_least(config, names) for names in (WIDTH, MLP, HEADS, HEAD_DIM))
    of_layer = width + 2 * width * mlp + 4 * width * heads * head_dim
    room = slice_.num_devices * slice_.usable_hbm_bytes
    for key, layers in bound_integers(config, LAYERS):
        needed = layers * max(1, of_layer) * _BYTES
        if layers > _TRACED and needed > room:
            return key, (
                f"{key.short} = {layers:,}: {layers:,} layers of at least {max(1, of_layer):,} parameters need "
                f"{Bytes(needed)}, and the {slice_.num_devices} devices of {slice_.name} have {Bytes(room)} together"
            )
    return None


def _least(config: GinConfig, names: frozenset[str]) -> int:
    return max(0, min((size for _, size in bound_integers(config, names)), default=0))
