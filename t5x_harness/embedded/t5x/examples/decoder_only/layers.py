"""The layers of a decoder-only model: T5's layers, except that the cache takes a whole prefix at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from t5x.examples.t5 import layers as t5_layers
from t5x.examples.t5.layers import *  # noqa: F403 (the layers, and the names of their types)
from t5x.examples.t5.layers import Array


class MultiHeadDotProductAttention(t5_layers.MultiHeadDotProductAttention):
    """Multi-head attention whose decoding cache may begin with a prefix.

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
        """Lets ``inputs_q`` attend to ``inputs_kv``, as T5's attention does.

        ``prefill`` puts the beginning of each sequence into the cache, which was made before. ``prefill_lengths``,
        int32[batch], is the number of these positions; if it is None, they are those that ``mask`` lets the first
        query attend to.

        Raises:
            ValueError: decoding with a query that isn't one token with the cache's batch size, or while the cache is
                filled.
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
        """Puts prefixes into the cache; makes the cache, without them, if there is none."""
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

        After prefixes of different lengths, sequences reach the end at different times. Finished ones have no bias
        any more: slices would repeat the last position's bias.
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
        """Computes the contents of the cache after the beginning of each sequence.

        ``key`` and ``value`` have all positions, float[batch, length, heads, depth]; ``prefill_lengths`` of
        them are used, and the rest stays zero. Variables and result are those of ``update_cache_decode``.
        """
        del cache_index
        shape = cached_key.value.shape
        is_prefix = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1) < prefill_lengths[:, None, None, None]
        keys, values = (jnp.moveaxis(x, -3, -1) * is_prefix for x in (key, value))
        return key, value, prefill_lengths, keys, values, prefill_lengths


class RelativePositionBiases(t5_layers.RelativePositionBiases):
    """Position biases, which are cached for decoding. See :class:`t5x.examples.t5.layers.RelativePositionBiases`."""

    @nn.compact
    def __call__(self, qlen: int, klen: int, bidirectional: bool = True, decode: bool = False) -> Array:
        """Returns float[1, num_heads, qlen, klen] biases; with ``decode``, the cached ones if there are any.

        Raises:
            ValueError: decoding in both directions, without parameters, or with lengths other than the first ones.
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
