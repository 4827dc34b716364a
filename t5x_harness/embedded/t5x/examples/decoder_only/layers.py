"""The layers of a decoder alone: those of T5, but for a cache that takes a whole prefix at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from t5x.examples.t5 import layers as t5_layers
from t5x.examples.t5.layers import (
    Activation,
    Array,
    DenseGeneral,
    DType,
    Embed,
    Initializer,
    LayerNorm,
    MlpBlock,
    PRNGKey,
    Shape,
    combine_biases,
    combine_masks,
    default_embed_init,
    dot_product_attention,
    make_attention_mask,
    make_causal_mask,
    make_decoder_mask,
    param_with_axes,
    with_sharding_constraint,
)

__all__ = [
    "Activation",
    "Array",
    "DType",
    "DenseGeneral",
    "Embed",
    "Initializer",
    "LayerNorm",
    "MlpBlock",
    "MultiHeadDotProductAttention",
    "PRNGKey",
    "RelativePositionBiases",
    "Shape",
    "combine_biases",
    "combine_masks",
    "default_embed_init",
    "dot_product_attention",
    "make_attention_mask",
    "make_causal_mask",
    "make_decoder_mask",
    "param_with_axes",
    "with_sharding_constraint",
]


class MultiHeadDotProductAttention(t5_layers.MultiHeadDotProductAttention):
    """Attention of several heads, whose cache for decoding may begin with a prefix.

    See :class:`t5x.examples.t5.layers.MultiHeadDotProductAttention`.
    """

    @nn.compact
    def __call__(
        self,
        inputs_q: Array,
        inputs_kv: Array,
        mask: Array | None = None,
        bias: Array | None = None,
        *,
        decode: bool = False,
        deterministic: bool = False,
        prefill: bool = False,
        prefill_lengths: Array | None = None,
    ) -> Array:
        """Lets ``inputs_q`` look at ``inputs_kv``.

        Args:
            inputs_q: float[batch, qlen, features].
            inputs_kv: float[batch, klen, features].
            mask: broadcasts to [batch, heads, qlen, klen]; keys with 0 are left out.
            bias: added to the logits; broadcasts to [batch, heads, qlen, klen].
            decode: whether to decode token by token. The first call, with inputs of full length, makes the cache; each
                further call takes one token and looks at all before it.
            deterministic: turns dropout off.
            prefill: whether to put the beginning of each sequence into the cache, which was made before.
            prefill_lengths: int32[batch], how many positions these are. Where it is None, they are those that ``mask``
                lets the first query look at.

        Returns:
            float[batch, qlen, features].

        Raises:
            ValueError: decoding with a query that isn't one token of what the cache was made for, or while the cache
                is filled.
        """
        if prefill and decode:
            raise ValueError(
                "prefill and decode cannot both be true at the same time: fill the cache with the prefixes first "
                "(prefill=True, under a mask of what they may look at), then decode the tokens after them (decode=True)"
            )
        query, key, value = self._project(inputs_q, inputs_kv)
        if decode:
            key, value, mask, bias = self._attend_to_past(query, key, value, mask, bias)
        elif prefill:
            self._fill_cache(key, value, mask, prefill_lengths)
        return self._attend(query, key, value, mask, bias, features=inputs_q.shape[-1], deterministic=deterministic)

    @nn.nowrap
    def _fill_cache(self, key: Array, value: Array, mask: Array | None, lengths: Array | None) -> None:
        """Puts prefixes into the cache; makes the cache, without them, when there is none."""
        cache_exists = self.has_variable("cache", "cached_key")
        cached_key, cached_value, index = self._cache(key, value)
        if not cache_exists:
            return
        if lengths is None:
            assert mask is not None
            lengths = jnp.sum(mask[:, 0, 0], axis=-1).astype(index.value.dtype)
        *_, cached_key.value, cached_value.value, index.value = self.update_cache_prefill(
            key, value, cached_key, cached_value, index, lengths
        )

    @nn.nowrap
    def _token_bias(self, bias: Array, now: Array) -> Array:
        """Picks the biases of the tokens at int32[1 or batch] out of float[1, heads, length, length].

        After prefixes of different lengths, sequences reach the end at different times. Those that have, have no bias
        any more: slices would repeat that of the last position.
        """
        here = jax.nn.one_hot(now, bias.shape[-2], dtype=bias.dtype)
        return jnp.einsum("bq,hqk->bhk", here, bias[0])[:, :, None]

    @nn.nowrap
    def update_cache_prefill(
        self,
        key: Array,
        value: Array,
        cached_key: nn.Variable,
        cached_value: nn.Variable,
        cache_index: nn.Variable,
        prefill_lengths: Array,
    ) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Computes what the cache holds after the beginning of each sequence.

        Args:
            key: float[batch, length, heads, depth], of all positions.
            value: float[batch, length, heads, depth], of all positions.
            cached_key: float[batch, heads, depth, length].
            cached_value: float[batch, heads, depth, length].
            cache_index: int32[].
            prefill_lengths: int32[batch], how many positions to take of each sequence; the rest stays zero.

        Returns:
            The keys and the values, as they are; the next positions, int32[batch]; and the new values of the three
            variables.
        """
        del cache_index
        is_prefix = jnp.arange(cached_key.value.shape[-1]) < prefill_lengths[:, None, None, None]
        keys, values = (jnp.moveaxis(x, -3, -1) * is_prefix for x in (key, value))
        return key, value, prefill_lengths, keys, values, prefill_lengths


class RelativePositionBiases(t5_layers.RelativePositionBiases):
    """Position biases, which are kept for decoding. See :class:`t5x.examples.t5.layers.RelativePositionBiases`."""

    @nn.compact
    def __call__(self, qlen: int, klen: int, bidirectional: bool = True, decode: bool = False) -> Array:
        """Returns float[1, num_heads, qlen, klen] biases.

        Args:
            qlen: number of query positions.
            klen: number of key positions.
            bidirectional: whether queries see keys after them.
            decode: whether to keep the biases with the cache, and to take them from there once they are.

        Raises:
            ValueError: decoding in both directions, without parameters, or with lengths other than the first time.
        """
        if not decode:
            return self._biases(qlen, klen, bidirectional)
        if bidirectional:
            raise ValueError(
                "bidirectional RelativePositionBiases are not supported when `decode=True`: a token that is decoded "
                "sees none after it"
            )
        if not self.has_variable("params", "rel_embedding"):
            raise ValueError(
                "decode-mode cannot be enabled during init. use model.apply to initialize the decoding cache: the "
                "biases kept would be those of parameters that nobody uses"
            )
        if not self.has_variable("cache", "cached_bias"):
            biases = self._biases(qlen, klen, bidirectional)
            self.put_variable("cache", "cached_bias", biases)
            return biases
        kept: Array = self.get_variable("cache", "cached_bias")
        if kept.shape != (1, self.num_heads, qlen, klen):
            raise ValueError(
                "The cached relative position attention bias was expected to have shape "
                f"{(1, self.num_heads, qlen, klen)} but instead has the shape {kept.shape}. Decode with the length "
                "that the cache was made for"
            )
        return kept
