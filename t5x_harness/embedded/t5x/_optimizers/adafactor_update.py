"""The arithmetic of Adafactor for one parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from t5x._optimizers.factoring import FactorDim, Factoring, FactorRule, HParamMap


@flax.struct.dataclass
class AdafactorHyperParams:
    """The constructor's arguments that may change from step to step."""

    learning_rate: Any
    factored: bool
    multiply_by_parameter_scale: bool | HParamMap
    beta1: float | None
    decay_rate: float
    step_offset: int
    clipping_threshold: float | None
    weight_decay_rate: float | None
    min_dim_size_to_factor: int
    epsilon1: float
    epsilon2: float
    factor_map: HParamMap | Mapping[str, FactorRule] | None
    logical_factor_rules: Mapping[str, str | FactorDim] | None
    weight_decay_rate_lr_exponent: float | None
    global_norm_clip_threshold: float | None
    max_parameter_scale: float | None
    skip_nan_updates: bool | None


@flax.struct.dataclass
class AdafactorParamState:
    """What is remembered of one parameter: either ``v`` or both factors, and ``m``; what is unused is ``zeros((1,))``.

    Attributes:
        v_row: second moment over the columns.
        v_col: second moment over the rows.
        v: full second moment.
        m: first moment.
    """

    v_row: Any  # arrays, or leaves of another kind in a state of axis names
    v_col: Any
    v: Any
    m: Any


def precondition(
    hp: AdafactorHyperParams, factoring: Factoring, state: AdafactorParamState, grad: jax.Array, step: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Divides a gradient by the root of its second moment; returns it with the new moments by name."""
    unused = jnp.zeros((1,))
    keep = 1.0 - (jnp.array(step - hp.step_offset, jnp.float32) + 1.0) ** (-hp.decay_rate)
    squared = jnp.square(grad) + hp.epsilon1
    if not factoring.factored:
        moment = keep * state.v + (1.0 - keep) * squared
        return grad * moment**-0.5, {"v_row": unused, "v_col": unused, "v": moment}
    row = keep * state.v_row + (1.0 - keep) * jnp.mean(squared, axis=factoring.columns)
    column = keep * state.v_col + (1.0 - keep) * jnp.mean(squared, axis=factoring.rows)
    wide_row = jnp.expand_dims(row, factoring.columns)
    normalized_row = wide_row / jnp.mean(wide_row, axis=factoring.rows, keepdims=True)
    direction = grad * normalized_row**-0.5 * jnp.expand_dims(column, factoring.rows) ** -0.5
    return direction, {"v_row": row, "v_col": column, "v": unused}


def step_size(hp: AdafactorHyperParams, param: jax.Array, factoring: Factoring, path: str) -> Any:
    """Returns the learning rate, times the scale of the parameter where that is asked for."""
    by_scale = hp.multiply_by_parameter_scale
    if not (by_scale[path] if isinstance(by_scale, HParamMap) else by_scale):
        return hp.learning_rate
    return hp.learning_rate * jnp.clip(rms(param, factoring.scale_dims), hp.epsilon2, hp.max_parameter_scale)


def weight_decay(hp: AdafactorHyperParams) -> Any:
    """Returns the fraction of the parameter to take away, or None."""
    if not hp.weight_decay_rate_lr_exponent:
        return hp.weight_decay_rate
    return (hp.weight_decay_rate or 1.0) * hp.learning_rate**hp.weight_decay_rate_lr_exponent


def unless_nan(new: jax.Array, old: jax.Array) -> jax.Array:
    """Keeps the old value of each element whose new one is NaN."""
    return jnp.where(jnp.isnan(new), old, new)


def rms(x: jax.Array, dims: tuple[int, ...]) -> jax.Array:
    """Returns the root mean square over some dimensions, which stay with size 1."""
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=dims, keepdims=True))
