"""Thresholds found bit by bit: top-k and top-p without sorting the vocabulary.

On a TPU, sorting the vocabulary is slow, while 32 counts over it are fast and need no second copy. So the
threshold above which there are ``k`` values, or probability ``p``, is found by binary search over all 32-bit numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

_INT32 = jnp.iinfo(jnp.int32)
Predicate = Callable[[jax.Array], jax.Array]


def int32_bsearch(batch_shape: Sequence[int], predicate: Predicate) -> jax.Array:
    """Finds, for each element of a batch, the largest number for which a predicate is still False.

    The predicate maps int32[batch_shape] to bool[batch_shape]; each element is False up to some number and True above
    it. If it is always True, the smallest int32 is returned.
    """

    def raise_by(step: int | jax.Array, found: jax.Array) -> jax.Array:
        higher = found + lax.shift_left(jnp.int32(1), jnp.int32(31 - step))
        return jnp.where(predicate(higher), found, higher)

    # The first increase, by 2**31, wraps around: from the smallest int32 to 0.
    return lax.fori_loop(1, 32, raise_by, raise_by(0, jnp.full(batch_shape, _INT32.min, jnp.int32)))


def _float_at(place: jax.Array) -> jax.Array:
    """Returns the float32 at an index into all float32 in order, negative NaNs first; 0.0 has index 0.

    Floats are a sign and a magnitude, integers are two's complements: negative ones run the other way round.
    """
    return lax.bitcast_convert_type(jnp.where(place < 0, place ^ _INT32.max, place), jnp.float32)


def float32_bsearch(batch_shape: Sequence[int], predicate: Predicate) -> jax.Array:
    """Finds, for each element of a batch, the largest finite number for which a predicate is still False.

    Like ``int32_bsearch`` with float32; minus infinity if the predicate is always True. It is called for finite
    numbers only.
    """

    def beyond(place: jax.Array) -> jax.Array:
        value = _float_at(place)
        return jnp.where(jnp.isfinite(value), predicate(value), place > 0)

    return _float_at(int32_bsearch(batch_shape, beyond))


def _reducible(values: jax.Array) -> tuple[jax.Array, int]:
    """Returns the values and the axis of their vocabulary, swapped with the axis before it if there is one.

    A reduction over the last axis goes across the lanes of a vector unit, and XLA does not move it out of a loop.
    """
    return (values, 0) if values.ndim == 1 else (jnp.swapaxes(values, -1, -2), values.ndim - 2)


def topk_mask(x: jax.Array, k: int, replace_val: jax.Array) -> jax.Array:
    """Keeps the ``k`` largest values of each row of float32[batch..., vocabulary], and ties with the smallest of them.

    ``replace_val`` replaces the others. The vocabulary should not be partitioned.
    """
    columns, axis = _reducible(x)

    def leaves_k_above(negated: jax.Array) -> jax.Array:
        return jnp.sum(columns > jnp.expand_dims(-negated, axis), axis=axis) >= k

    # The search finds a largest number, but the smallest one with fewer than k values above it is needed.
    least = -float32_bsearch(x.shape[:-1], leaves_k_above)
    return jnp.where(x >= least[..., None], x, replace_val)


def topp_mask(logits: jax.Array, p: float, replace_val: jax.Array) -> jax.Array:
    """Keeps the likeliest tokens that together reach probability ``p``, and ties with the least likely of them.

    This is the set of nucleus sampling (Holtzman et al. 2019, arXiv:1904.09751). The arguments are as in
    ``topk_mask``.
    """
    probs = jax.nn.softmax(logits, axis=-1)
    columns, axis = _reducible(probs)

    def falls_short(threshold: jax.Array) -> jax.Array:
        kept = columns >= jnp.expand_dims(threshold, axis)
        return jnp.sum(jnp.where(kept, columns, 0), axis=axis) < p

    least = float32_bsearch(logits.shape[:-1], falls_short)
    return jnp.where(probs >= least[..., None], logits, replace_val)
