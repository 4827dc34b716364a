"""Attention masks: 1 where a query may look at a key, 0 where it may not."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from t5x.examples.t5._types import Array, DType


def make_attention_mask(
    query_input: Array,
    key_input: Array,
    pairwise_fn: Callable[[Array, Array], Array] = jnp.multiply,
    extra_batch_dims: int = 0,
    dtype: DType = jnp.float32,
) -> Array:
    """Compares every query position with every key position.

    Args:
      query_input: [batch..., qlen], what is known of the queries, e.g. whether they are tokens or padding.
      key_input: [batch..., klen], the same of the keys.
      pairwise_fn: Makes the mask value of a pair.
      extra_batch_dims: How many axes of size 1 to add in front.
      dtype: Of the mask.

    Returns:
      [1..., batch..., 1, qlen, klen], with an axis of size 1 for the heads.
    """
    pairs = pairwise_fn(query_input[..., None, :, None], key_input[..., None, None, :])
    return pairs.reshape((1,) * extra_batch_dims + pairs.shape).astype(dtype)


def make_causal_mask(x: Array, extra_batch_dims: int = 0, dtype: DType = jnp.float32) -> Array:
    """Lets every position look at itself and at what comes before.

    Args:
      x: [batch..., length]; only its shape is used.
      extra_batch_dims: How many axes of size 1 to add in front.
      dtype: Of the mask.

    Returns:
      [1..., batch..., 1, length, length].
    """
    positions = jnp.broadcast_to(jnp.arange(x.shape[-1]), x.shape)
    return make_attention_mask(positions, positions, jnp.greater_equal, extra_batch_dims, dtype)


def _given(arrays: Sequence[Array | None]) -> list[Array]:
    """Leaves out the Nones.

    Raises:
      AssertionError: The arrays that are left differ in rank.
    """
    given = [array for array in arrays if array is not None]
    if len({array.ndim for array in given}) > 1:
        raise AssertionError(f"masks and biases must have the same rank, got shapes {[a.shape for a in given]}")
    return given


def combine_masks(*masks: Array | None, dtype: DType = jnp.float32) -> Array | None:
    """Lets through what all masks let through.

    Args:
      *masks: Masks of the same rank, whose shapes broadcast; Nones are left out.
      dtype: Of the result.

    Returns:
      The combined mask, or None if there is none.

    Raises:
      AssertionError: The masks differ in rank.
    """
    given = _given(masks)
    return functools.reduce(jnp.logical_and, given).astype(dtype) if given else None


def combine_biases(*masks: Array | None) -> Array | None:
    """Adds up attention biases.

    Args:
      *masks: Biases of the same rank, whose shapes broadcast; Nones are left out.

    Returns:
      The sum, or None if there is none.

    Raises:
      AssertionError: The biases differ in rank.
    """
    given = _given(masks)
    return functools.reduce(operator.add, given) if given else None


def make_decoder_mask(
    decoder_target_tokens: Array,
    dtype: Any,
    decoder_causal_attention: Array | None = None,
    decoder_segment_ids: Array | None = None,
) -> Array:
    """Makes the mask of a decoder's self-attention: causal, without padding, within packed sequences.

    Args:
      decoder_target_tokens: int[batch, length]; zeros are padding.
      dtype: Of the mask.
      decoder_causal_attention: int[batch, length], 1 at the positions of a prefix that see each other in both
        directions (prefix language models).
      decoder_segment_ids: int[batch, length], which packed sequence a position belongs to.

    Returns:
      [batch, 1, length, length].
    """
    allowed = make_causal_mask(decoder_target_tokens, dtype=dtype)
    if decoder_causal_attention is not None:
        within_prefix = make_attention_mask(decoder_causal_attention, decoder_causal_attention, jnp.logical_and)
        allowed = jnp.logical_or(allowed, within_prefix)
    is_token = decoder_target_tokens > 0
    same_segment = None
    if decoder_segment_ids is not None:
        same_segment = make_attention_mask(decoder_segment_ids, decoder_segment_ids, jnp.equal)
    mask = combine_masks(allowed, make_attention_mask(is_token, is_token), same_segment, dtype=dtype)
    assert mask is not None  # the causal mask is always there
    return mask
