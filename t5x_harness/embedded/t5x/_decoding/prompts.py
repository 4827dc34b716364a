"""Shifting padded prompts to the right or the left edge."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def _shift_right(tokens: jax.Array, by: jax.Array) -> jax.Array:
    """Shifts every row by its own distance (negative: to the left) and fills up with zeros."""
    length = tokens.shape[1]
    source = jnp.arange(length) - by[:, None]
    shifted = jnp.take_along_axis(tokens, jnp.clip(source, 0, length - 1), axis=1)
    return jnp.where((source >= 0) & (source < length), shifted, 0)


def right_align(prompts: jax.Array) -> jax.Array:
    """Shifts int[rows, length] prompts until the last token that is not padding stands in the last column."""
    length = prompts.shape[1]
    last_token = jnp.max(jnp.where(prompts != 0, jnp.arange(length), 0), axis=1)
    return _shift_right(prompts, length - 1 - last_token)


def left_align(prompts: jax.Array) -> jax.Array:
    """Shifts int[rows, length] prompts until the first token that is not padding stands in the first column."""
    first_token = jnp.argmax(prompts != 0, axis=1)  # 0 for rows of padding only
    return _shift_right(prompts, -first_token)
