"""The factors whose product is a learning rate schedule.

T5 was pretrained with ``rsqrt_decay``, whose constant stretch doubles as warm-up (Raffel et al. 2019, section 3.1.2,
arXiv:1910.10683), and fine-tuned with ``constant``; Adafactor multiplies both by the scale of each parameter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

# A rate stays a Python float until a factor depends on the step: that keeps the precision of the bound value.
Rate = Any


@dataclasses.dataclass(frozen=True)
class Settings:
    base_learning_rate: float
    warmup_steps: int
    decay_factor: float
    steps_per_decay: int
    steps_per_cycle: int


def _constant(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    return rate * s.base_learning_rate


def _linear_warmup(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    return rate * jnp.minimum(1.0, step / s.warmup_steps)


def _linear_decay(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    """Rises like a constant with warm-up, then falls by ``decay_factor`` of the base rate per step."""
    falling = 1.0 + s.decay_factor * (s.warmup_steps - step)
    return rate * (s.base_learning_rate * jnp.minimum(step / s.warmup_steps, falling))


def _rsqrt_decay(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    return rate / jnp.sqrt(jnp.maximum(step, s.warmup_steps))


def _rsqrt_normalized_decay(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    return rate * jnp.sqrt(s.warmup_steps) / jnp.sqrt(jnp.maximum(step, s.warmup_steps))


def _decay_every(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    return rate * s.decay_factor ** (step // s.steps_per_decay)


def _cosine_decay(rate: Rate, step: jax.Array, s: Settings) -> Rate:
    """Falls along half a cosine in every cycle: Loshchilov and Hutter 2016, arXiv:1608.03983."""
    cycles = jnp.maximum(0.0, (step - s.warmup_steps) / float(s.steps_per_cycle))
    return rate * jnp.maximum(0.0, 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0))))


FACTORS: Mapping[str, Callable[[Rate, jax.Array, Settings], Rate]] = MappingProxyType(
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
