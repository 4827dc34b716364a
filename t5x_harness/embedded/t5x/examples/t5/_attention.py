"""Multi-head dot-product attention, with a cache for decoding."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from t5x.examples.t5._dense import DenseGeneral
from t5x.examples.t5._masks import combine_biases, combine_masks
from t5x.examples.t5._types import Array, DType, Initializer, PRNGKey, with_sharding_constraint

# Added to the logits of keys that are masked out.
_MASKED = -1e10


def _check_attention_shapes(query: Array, key: Array, value: Array) -> None:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise AssertionError(f"attention needs arrays of shape [batch, length, heads, depth], got {shapes}")
    for same, what in [
        (query.shape[0] == key.shape[0] == value.shape[0], "batch sizes"),
        (query.shape[2] == key.shape[2] == value.shape[2], "numbers of heads"),
        (key.shape[1] == value.shape[1], "lengths of key and value"),
        (query.shape[3] == key.shape[3], "depths of query and key"),
    ]:
        if not same:
            raise AssertionError(f"the {what} differ: {shapes}")


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    dropout_rng: PRNGKey | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: DType = jnp.float32,
    float32_logits: bool = False,
) -> Array:
    """Averages values by how well their keys match the queries.

    Logits are not divided by the square root of the depth: T5 has that in the initial values of the query projection.

    Args:
      query: float[batch, qlen, heads, depth].
      key: float[batch, klen, heads, depth].
      value: float[batch, klen, heads, value_depth].
      bias: Added to the logits, broadcast to [batch, heads, qlen, klen]; this is how masks come in.
      dropout_rng: Key of the dropout, needed unless it's off.
      dropout_rate: Share of weights to drop; a key is dropped for all queries at once.
      deterministic: Turns dropout off.
      dtype: Of the attention weights.
      float32_logits: Whether to compute the logits in float32 whatever the inputs are.

    Returns:
      float[batch, qlen, heads, value_depth].

    Raises:
      AssertionError: The shapes don't fit together.
    """
    _check_attention_shapes(query, key, value)
    if float32_logits:
        query, key = query.astype(jnp.float32), key.astype(jnp.float32)
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key)
    if bias is not None:
        logits += bias.astype(logits.dtype)
    weights = jax.nn.softmax(logits).astype(dtype)
    if dropout_rate > 0.0 and not deterministic:
        batch, heads, _, klen = weights.shape
        kept_rate = 1.0 - dropout_rate
        kept = jax.random.bernoulli(dropout_rng, kept_rate, (batch, heads, 1, klen))
        weights *= kept.astype(weights.dtype) / jnp.asarray(kept_rate, dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


class MultiHeadDotProductAttention(nn.Module):
    """Attention of several heads between two sequences.

    Attributes:
      num_heads: Number of heads.
      head_dim: Depth of each.
      dtype: In what to compute.
      dropout_rate: Dropout of the attention weights.
      kernel_init: Initialises all kernels.
      float32_logits: Whether to compute the attention logits in float32 whatever `dtype` is.
    """

    num_heads: int
    head_dim: int
    dtype: DType = jnp.float32
    dropout_rate: float = 0.0
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    float32_logits: bool = False

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
    ) -> Array:
        """Lets `inputs_q` look at `inputs_kv`.

        Args:
          inputs_q: float[batch, qlen, features].
          inputs_kv: float[batch, klen, features].
          mask: Broadcasts to [batch, heads, qlen, klen]; keys with 0 are left out.
          bias: Added to the logits; broadcasts to [batch, heads, qlen, klen].
          decode: Whether to decode token by token. The first call, with inputs of full length, makes the cache; each
            further call takes one token and looks at all before it.
          deterministic: Turns dropout off.

        Returns:
          float[batch, qlen, features].

        Raises:
          ValueError: Decoding with a query that isn't one token of what the cache was made for.
        """
        query, key, value = self._project(inputs_q, inputs_kv)
        if decode:
            key, value, mask, bias = self._attend_to_past(query, key, value, mask, bias)
        if mask is not None:
            masking = jnp.where(mask > 0, 0.0, _MASKED).astype(self.dtype)
            bias = combine_biases(masking, bias)
        with_dropout = self.dropout_rate > 0.0 and not deterministic
        heads = dot_product_attention(
            query,
            key,
            value,
            bias=bias,
            dropout_rng=self.make_rng("dropout") if with_dropout else None,
            dropout_rate=self.dropout_rate,
            deterministic=deterministic,
            dtype=self.dtype,
            float32_logits=self.float32_logits,
        )
        return DenseGeneral(
            features=inputs_q.shape[-1],
            axis=(-2, -1),
            kernel_init=self.kernel_init,
            kernel_axes=("joined_kv", "embed"),
            dtype=self.dtype,
            name="out",
        )(heads)

    def _project(self, inputs_q: Array, inputs_kv: Array) -> tuple[Array, ...]:
        """Makes query, key and value of shape [batch, length, heads, depth]."""
        scale = jnp.sqrt(self.head_dim).astype(self.dtype)

        def query_init(*args: Any) -> Array:
            return self.kernel_init(*args) / scale

        project = functools.partial(
            DenseGeneral,
            features=(self.num_heads, self.head_dim),
            kernel_axes=("embed", "joined_kv"),
            dtype=self.dtype,
        )
        projected = (
            project(kernel_init=query_init, name="query")(inputs_q),
            project(kernel_init=self.kernel_init, name="key")(inputs_kv),
            project(kernel_init=self.kernel_init, name="value")(inputs_kv),
        )
        return tuple(with_sharding_constraint(x, ("batch", "length", "heads", "kv")) for x in projected)

    def _attend_to_past(
        self, query: Array, key: Array, value: Array, mask: Array | None, bias: Array | None
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Puts one token's key and value into the cache, and gives those of all tokens so far with mask and bias.

        When there is no cache yet, it is made, with room for the length of `key`, and everything is given back as is.
        """
        cache_exists = self.has_variable("cache", "cached_key")
        # Length comes last: TPUs store the two minor axes in tiles, and the length fills those best.
        as_cached = functools.partial(jnp.moveaxis, source=-3, destination=-1)
        as_used = functools.partial(jnp.moveaxis, source=-1, destination=-3)
        cached_key = self.variable("cache", "cached_key", jnp.zeros, as_cached(key).shape, key.dtype)
        cached_value = self.variable("cache", "cached_value", jnp.zeros, as_cached(value).shape, value.dtype)
        index = self.variable("cache", "cache_index", jnp.zeros, (), jnp.int32)
        if not cache_exists:
            return key, value, mask, bias

        batch, num_heads, depth, length = cached_key.value.shape
        if query.shape != (batch, 1, num_heads, depth):
            raise ValueError(
                f"decoding takes one token at a time: the cache was made for queries of shape "
                f"{(batch, 1, num_heads, depth)}, got {query.shape}"
            )
        now = index.value
        # An addition, because it is faster on TPUs than a scatter; what is not decoded yet is still zero.
        here = jax.nn.one_hot(now, length, dtype=key.dtype)
        cached_key.value += as_cached(key) * here
        cached_value.value += as_cached(value) * here
        index.value = now + 1

        past = jnp.broadcast_to(jnp.arange(length) <= now, (batch, 1, 1, length))
        if bias is not None:
            bias = lax.dynamic_slice_in_dim(bias, now, 1, axis=-2)
        return as_used(cached_key.value), as_used(cached_value.value), combine_masks(mask, past), bias
