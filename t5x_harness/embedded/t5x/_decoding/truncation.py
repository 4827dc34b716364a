"""Truncated sampling distributions: top-k and nucleus (top-p)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from t5x._decoding.state import NEG_INF_VALUE


def _keep(logits: jax.Array, kept: jax.Array) -> jax.Array:
    return jnp.where(kept, logits, jnp.asarray(NEG_INF_VALUE, logits.dtype))


def keep_top_k(logits: jax.Array, k: int | jax.Array) -> jax.Array:
    """Rules out all but the k likeliest tokens; tokens as likely as the last of them stay too.

    Args:
      logits: float[..., vocabulary].
      k: How many to keep, possibly traced; 0 keeps all.

    Returns:
      The logits, with `NEG_INF` for the tokens that are ruled out.
    """
    vocabulary = logits.shape[-1]
    ascending = jnp.sort(logits, axis=-1)
    place = jnp.clip(vocabulary - jnp.asarray(k), 0, vocabulary - 1)
    least = jnp.take(ascending, place, axis=-1)[..., None]
    return _keep(logits, (logits >= least) | (jnp.asarray(k) == 0))


def keep_top_p(logits: jax.Array, p: float | jax.Array) -> jax.Array:
    """Rules out all but the likeliest tokens that together reach probability p; ties with the last of them stay too.

    Args:
      logits: float[..., vocabulary].
      p: The probability to reach, possibly traced. T5X rules out every token when a traced p is 0, which makes all
        tokens equally likely; so does this.

    Returns:
      The logits, with `NEG_INF` for the tokens that are ruled out.
    """
    probs = jax.nn.softmax(logits, axis=-1)
    descending = jnp.flip(jnp.sort(probs, axis=-1), axis=-1)
    short_of_p = jnp.sum(jnp.cumsum(descending, axis=-1) < p, axis=-1, keepdims=True)
    least = jnp.take_along_axis(descending, jnp.minimum(short_of_p, probs.shape[-1] - 1), axis=-1)
    return _keep(logits, (probs >= least) & (jnp.asarray(p) > 0))
