"""Learning rates written as a product of named factors, e.g. ``'constant * rsqrt_decay'``."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from t5x._utils.callables import LearningRateCallable

# A rate stays a Python float until a factor depends on the step: that keeps the precision of the bound value.
Rate = Any


@dataclasses.dataclass(frozen=True)
class _Settings:
    base_learning_rate: float
    warmup_steps: int
    decay_factor: float
    steps_per_decay: int
    steps_per_cycle: int


def _constant(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    return rate * s.base_learning_rate


def _linear_warmup(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    return rate * jnp.minimum(1.0, step / s.warmup_steps)


def _linear_decay(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    """Rises like a constant with warm-up, then falls by ``decay_factor`` of the base rate a step."""
    falling = 1.0 + s.decay_factor * (s.warmup_steps - step)
    return rate * (s.base_learning_rate * jnp.minimum(step / s.warmup_steps, falling))


def _rsqrt_decay(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    return rate / jnp.sqrt(jnp.maximum(step, s.warmup_steps))


def _rsqrt_normalized_decay(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    return rate * jnp.sqrt(s.warmup_steps) / jnp.sqrt(jnp.maximum(step, s.warmup_steps))


def _decay_every(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    return rate * s.decay_factor ** (step // s.steps_per_decay)


def _cosine_decay(rate: Rate, step: jax.Array, s: _Settings) -> Rate:
    cycles = jnp.maximum(0.0, (step - s.warmup_steps) / float(s.steps_per_cycle))
    return rate * jnp.maximum(0.0, 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0))))


_FACTORS: Mapping[str, Callable[[Rate, jax.Array, _Settings], Rate]] = MappingProxyType(
    {
        "constant": _constant,
        "linear_warmup": _linear_warmup,
        "linear_decay": _linear_decay,
        "rsqrt_decay": _rsqrt_decay,
        "rsqrt_normalized_decay": _rsqrt_normalized_decay,
        "decay_every": _decay_every,
        "cosine_decay": _cosine_decay,
    }
)


def create_learning_rate_scheduler(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: int = 1000,
    decay_factor: float = 0.5,
    steps_per_decay: int = 20000,
    steps_per_cycle: int = 100000,
    step_offset: int = 0,
    min_learning_rate: float = 1e-8,
) -> LearningRateCallable:
    """Makes a learning rate schedule from a product of factors.

    ==========================  =====================================================================================
    factor                      multiplies the rate by
    ==========================  =====================================================================================
    ``constant``                ``base_learning_rate``
    ``linear_warmup``           ``step / warmup_steps``, at most 1
    ``linear_decay``            the base rate with its warm-up, then less ``decay_factor`` of it for each further step;
                                stands alone, without ``constant`` and ``linear_warmup``
    ``rsqrt_decay``             ``1 / sqrt(max(step, warmup_steps))``
    ``rsqrt_normalized_decay``  the same, scaled to be 1 until ``warmup_steps``
    ``decay_every``             ``decay_factor`` once for every ``steps_per_decay`` steps
    ``cosine_decay``            half a cosine from 1 to 0, anew every ``steps_per_cycle`` steps after the warm-up
    ==========================  =====================================================================================

    Args:
        factors: Names of the table joined by ``*``.
        base_learning_rate: See the table.
        warmup_steps: See the table.
        decay_factor: See the table.
        steps_per_decay: See the table.
        steps_per_cycle: See the table.
        step_offset: The step from which the schedule counts; before it, it stands at 0.
        min_learning_rate: The rate never falls below this.

    Returns:
        A function of the step (an integer or an int32 scalar) to a float32 scalar.

    Raises:
        ValueError: A factor is not in the table.
    """
    names = [name.strip() for name in factors.split("*")]
    for name in names:
        if name not in _FACTORS:
            close = difflib.get_close_matches(name, _FACTORS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ValueError(
                f"Unknown factor {name!r} in the learning rate schedule {factors!r}{hint} "
                f"Known factors: {', '.join(_FACTORS)}."
            )
    settings = _Settings(base_learning_rate, warmup_steps, decay_factor, steps_per_decay, steps_per_cycle)

    def learning_rate(step: jnp.ndarray) -> jnp.ndarray:
        step = jnp.maximum(0, step - step_offset)
        rate: Rate = 1.0
        for name in names:
            rate = _FACTORS[name](rate, step, settings)
        return jnp.asarray(jnp.maximum(rate, min_learning_rate), dtype=jnp.float32)

    return learning_rate
