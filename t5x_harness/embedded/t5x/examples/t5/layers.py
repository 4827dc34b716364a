"""The layers of T5: attention, feed-forward block, norm, embeddings, relative position biases, and attention masks."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen import partitioning
from jax import lax

# The other networks have these names too, some of them with changes.
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

Array = jax.Array
DType = Any
PRNGKey = jax.Array
Shape = Sequence[int]
Activation = Callable[..., Array]
Initializer = Callable[[PRNGKey, Shape, DType], Array]

# Parameters and activations carry logical axis names; the partitioner's rules map those to mesh axes.
param_with_axes = partitioning.param_with_axes
with_sharding_constraint = partitioning.with_sharding_constraint

default_embed_init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def _as_tuple(value: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Iterable) else (value,)


class DenseGeneral(nn.Module):
    """A linear projection of some axes of the input onto new axes, which come last.

    The kernel, float32 whatever ``dtype`` is, is stored as a matrix [product of contracted sizes,
    product of features], whatever the number of axes, so that its initial values have the right scale. ``kernel_axes``
    are the logical names of its two axes.
    """

    features: Iterable[int] | int
    axis: Iterable[int] | int = -1
    dtype: DType = jnp.float32
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    kernel_axes: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Projects float[..., contracted axes] to float[..., *features]."""
        inputs = jnp.asarray(inputs, self.dtype)
        contracted = tuple(axis % inputs.ndim for axis in _as_tuple(self.axis))
        sizes_in = tuple(inputs.shape[axis] for axis in contracted)
        sizes_out = _as_tuple(self.features)
        kernel = self._kernel(sizes_in, sizes_out)
        return jnp.tensordot(inputs, kernel, axes=(contracted, tuple(range(len(contracted)))))

    @nn.nowrap
    def _kernel(self, sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> Array:
        """Declares the kernel; in the ``dtype`` of the computation, [*sizes_in, *sizes_out].

        It is converted as a matrix, the form in which it is stored: a decoding loop carries the result, and a TPU
            stores a
        matrix in fewer tiles.
        """
        matrix_shape = (math.prod(sizes_in), math.prod(sizes_out))
        kernel = param_with_axes("kernel", self.kernel_init, matrix_shape, jnp.float32, axes=self.kernel_axes)
        return kernel.astype(self.dtype).reshape(sizes_in + sizes_out)


def _activation_fn(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Finds an activation function by its name in ``flax.linen``; "linear" is the identity."""
    if activation == "linear":
        return lambda x: x
    found = getattr(nn, activation, None) if isinstance(activation, str) else activation
    if not callable(found):
        raise ValueError(
            f"{activation!r} is not an activation: give a function, 'linear', or the name of one in flax.linen such as "
            "'relu' or 'gelu'"
        )
    return found


class MlpBlock(nn.Module):
    """The feed-forward block: transforms every position by itself.

    With more than one activation, their outputs are multiplied: gated units, from Shazeer 2020, arXiv:2002.05202.
    Dropout of the hidden layer, which has ``intermediate_dim`` features, is the same for all positions.
    """

    intermediate_dim: int = 2048
    activations: Sequence[str | Callable[[Array], Array]] = ("relu",)
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    intermediate_dropout_rate: float = 0.1
    dtype: Any = jnp.float32

    _projection = DenseGeneral

    @nn.compact
    def __call__(self, inputs: Array, decode: bool = False, deterministic: bool = False) -> Array:
        """Transforms float[batch, length, features]; decoding changes nothing here."""
        del decode
        dense = functools.partial(self._projection, dtype=self.dtype, kernel_init=self.kernel_init)
        names = ["wi"] if len(self.activations) == 1 else [f"wi_{i}" for i in range(len(self.activations))]
        branches = [
            _activation_fn(activation)(dense(self.intermediate_dim, kernel_axes=("embed", "mlp"), name=name)(inputs))
            for name, activation in zip(names, self.activations, strict=True)
        ]
        hidden = functools.reduce(operator.mul, branches)
        hidden = nn.Dropout(self.intermediate_dropout_rate, broadcast_dims=(-2,))(hidden, deterministic=deterministic)
        hidden = with_sharding_constraint(hidden, ("batch", "length", "mlp"))
        return dense(inputs.shape[-1], kernel_axes=("mlp", "embed"), name="wo")(hidden)


class LayerNorm(nn.Module):
    """Root-mean-square norm: no mean is subtracted, and there is a scale but no bias.

    From Zhang and Sennrich 2019, arXiv:1910.07467. The mean square, to which ``epsilon`` is added, is computed in
    float32.
    """

    epsilon: float = 1e-6
    dtype: Any = jnp.float32
    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalizes float[..., features] over its last axis."""
        x = jnp.asarray(x, jnp.float32)
        scale = param_with_axes("scale", self.scale_init, (x.shape[-1],), jnp.float32, axes=("embed",))
        inverse_rms = lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return (x * inverse_rms).astype(self.dtype) * scale.astype(self.dtype)


# Added to the logits of masked keys.
_MASKED = -1e10

# In the cache, the length of keys and values is the last axis: TPUs tile the two minor axes, and it fills tiles best.
_as_cached = functools.partial(jnp.moveaxis, source=-3, destination=-1)
_as_used = functools.partial(jnp.moveaxis, source=-1, destination=-3)


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
    """Averages float[batch, klen, heads, value_depth] values by how well their keys match the queries.

    ``query`` is float[batch, qlen, heads, depth], ``key`` float[batch, klen, heads, depth]. ``bias`` is added to the
    logits, and broadcast to [batch, heads, qlen, klen]; masks are applied this way. Logits are not divided by the
    square root of the depth: in T5 the initial values of the query projection include it. They are float32 with
    ``float32_logits``, whatever the inputs are; ``dtype`` is the dtype of the attention weights. Dropout drops a key
    for all queries at once.

    Raises:
        AssertionError: the shapes don't match.
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
    """Multi-head attention between two sequences, from Vaswani et al. 2017, arXiv:1706.03762.

    ``head_dim`` is the depth of each head, ``dropout_rate`` the rate for the attention weights; ``dtype`` and
    ``float32_logits`` are those of ``dot_product_attention``.
    """

    num_heads: int
    head_dim: int
    dtype: DType = jnp.float32
    dropout_rate: float = 0.0
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    float32_logits: bool = False

    _projection = DenseGeneral
    _input_axes = ("embed", "joined_kv")
    _output_axes = ("joined_kv", "embed")

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
        """Lets float[batch, qlen, features] ``inputs_q`` attend to float[batch, klen, features] ``inputs_kv``.

        ``mask`` and ``bias`` broadcast to [batch, heads, qlen, klen]: keys with mask 0 are left out, the bias is added
        to the logits. With ``decode``, the first call, with inputs of full length, makes the cache; each further call
        takes one token and attends to all tokens before it.

        Raises:
            ValueError: decoding with a query that isn't one token with the cache's batch size.
        """
        query, key, value = self._project(inputs_q, inputs_kv)
        if decode:
            key, value, mask, bias = self._attend_to_past(query, key, value, mask, bias)
        return self._attend(query, key, value, mask, bias, features=inputs_q.shape[-1], deterministic=deterministic)

    @nn.nowrap
    def _project(self, inputs_q: Array, inputs_kv: Array) -> tuple[Array, Array, Array]:
        """Makes query, key and value of shape [batch, length, heads, depth]."""
        scale = jnp.sqrt(self.head_dim).astype(self.dtype)

        def query_init(*args: Any) -> Array:
            return self.kernel_init(*args) / scale

        def project(name: str, inputs: Array, kernel_init: Initializer) -> Array:
            dense = self._projection(
                features=(self.num_heads, self.head_dim),
                kernel_init=kernel_init,
                kernel_axes=self._input_axes,
                dtype=self.dtype,
                name=name,
            )
            return with_sharding_constraint(dense(inputs), ("batch", "length", "heads", "kv"))

        return (
            project("query", inputs_q, query_init),
            project("key", inputs_kv, self.kernel_init),
            project("value", inputs_kv, self.kernel_init),
        )

    @nn.nowrap
    def _attend(
        self,
        query: Array,
        key: Array,
        value: Array,
        mask: Array | None,
        bias: Array | None,
        *,
        features: int,
        deterministic: bool,
    ) -> Array:
        """Attends under a mask, and joins the heads: float[batch, qlen, features]."""
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
        )  # [batch, qlen, heads, depth]
        return self._projection(
            features=features,
            axis=(-2, -1),
            kernel_init=self.kernel_init,
            kernel_axes=self._output_axes,
            dtype=self.dtype,
            name="out",
        )(heads)

    @nn.nowrap
    def _cache(self, key: Array, value: Array) -> tuple[nn.Variable, nn.Variable, nn.Variable]:
        """Finds or makes the cache of keys and values, and the index of its next position."""
        return (
            self.variable("cache", "cached_key", jnp.zeros, _as_cached(key).shape, key.dtype),
            self.variable("cache", "cached_value", jnp.zeros, _as_cached(value).shape, value.dtype),
            self.variable("cache", "cache_index", jnp.zeros, (), jnp.int32),
        )

    @nn.nowrap
    def _attend_to_past(
        self, query: Array, key: Array, value: Array, mask: Array | None, bias: Array | None
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Puts one token's key and value into the cache; returns those of all tokens so far, with mask and bias.

        If there is no cache yet, it is made, with room for the length of ``key``, and the arguments are returned
        unchanged.
        """
        cache_exists = self.has_variable("cache", "cached_key")
        cached_key, cached_value, index = self._cache(key, value)
        if not cache_exists:
            return key, value, mask, bias

        batch, num_heads, depth, length = cached_key.value.shape
        if query.shape != (batch, 1, num_heads, depth):
            raise ValueError(
                f"Autoregressive cache shape error, expected query shape {(batch, 1, num_heads, depth)} instead got "
                f"{query.shape}. Decoding takes one token at a time, and the cache was made for sequences of {length}."
            )
        key, value, now, cached_key.value, cached_value.value, index.value = self.update_cache_decode(
            key, value, cached_key, cached_value, index
        )
        past = jnp.arange(length) <= now[:, None, None, None]  # [1 or batch, 1, 1, length]
        if bias is not None:
            bias = self._token_bias(bias, now)
        return key, value, combine_masks(mask, jnp.broadcast_to(past, (batch, 1, 1, length))), bias

    @nn.nowrap
    def _token_bias(self, bias: Array, now: Array) -> Array:
        """Picks the biases of the token at int32[1] out of float[1, heads, length, length]."""
        # One slice for each position, which is a gather: its result has another layout on a TPU than a slice.
        return jax.vmap(lambda position: lax.dynamic_slice_in_dim(bias[0], position, 1, axis=-2))(now)

    @nn.nowrap
    def update_cache_decode(
        self, key: Array, value: Array, cached_key: nn.Variable, cached_value: nn.Variable, cache_index: nn.Variable
    ) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Computes the cache's contents after one more token, at position ``cache_index``: int32[] or int32[batch].

        ``key`` and ``value`` are float[batch, 1, heads, depth], in the cache [batch, heads, depth, length].

        Returns:
            The keys and the values of all positions, as float[batch, length, heads, depth]; the token's positions,
            int32[1] or int32[batch]; and the new values of the three variables.
        """
        now = jnp.reshape(cache_index.value, -1)
        # An addition, because it is faster on TPUs than a scatter; positions that are not decoded yet are still zero.
        here = jax.nn.one_hot(now, cached_key.value.shape[-1], dtype=key.dtype)[:, None, None]
        keys = cached_key.value + _as_cached(key) * here
        values = cached_value.value + _as_cached(value) * here
        return _as_used(keys), _as_used(values), now, keys, values, cache_index.value + 1


class Embed(nn.Module):
    """A table of token vectors, which can also map vectors back to logits.

    ``one_hot`` looks up by a matrix product with one-hot vectors, which is faster on TPUs, instead of by indexing.
    ``cast_input_dtype`` is the dtype that token ids are cast to first, and logits are computed in ``attend_dtype``, or
    in ``dtype``.

    Attributes:
        embedding: the table, float32[num_embeddings, features].
    """

    num_embeddings: int
    features: int
    cast_input_dtype: DType | None = None
    dtype: DType = jnp.float32
    attend_dtype: DType | None = None
    embedding_init: Initializer = default_embed_init
    one_hot: bool = False
    embedding: Array = dataclasses.field(init=False)

    def setup(self) -> None:
        """Declares the table."""
        shape = (self.num_embeddings, self.features)
        self.embedding = param_with_axes("embedding", self.embedding_init, shape, jnp.float32, axes=("vocab", "embed"))

    def __call__(self, inputs: Array) -> Array:
        """Looks up the vectors of int[batch, length] token ids: float[batch, length, features].

        Raises:
            ValueError: the ids are not integers.
        """
        if self.cast_input_dtype:
            inputs = inputs.astype(self.cast_input_dtype)
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(f"Input type must be an integer or unsigned integer. Token ids here are {inputs.dtype}.")
        table = self.embedding.astype(self.dtype)
        if self.one_hot:
            return jax.nn.one_hot(inputs, self.num_embeddings, dtype=self.dtype) @ table
        return with_sharding_constraint(table[inputs], ("batch", "length", "embed"))

    def attend(self, query: Array) -> Array:
        """Multiplies float[..., features] with every token's vector: float[..., num_embeddings]."""
        dtype = self.dtype if self.attend_dtype is None else self.attend_dtype
        return query @ self.embedding.astype(dtype).T


def _relative_position_buckets(
    qlen: int, klen: int, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> np.ndarray:
    """Sorts all pairs of a query and a key position into buckets by their distance: int[qlen, klen].

    Half of the buckets hold one small distance each. The others grow in proportion to the distance, up to
    ``max_distance``; the last one holds all that is farther. When keys after the query count too (``bidirectional``),
    they get the upper half of all buckets; otherwise they share bucket 0 with distance 0. From Raffel et al. 2019,
    arXiv:1910.10683, section 2.1.
    """
    steps_back = np.arange(qlen, dtype=np.int32)[:, None] - np.arange(klen, dtype=np.int32)
    first: int | np.ndarray = 0
    if bidirectional:
        num_buckets //= 2
        first = np.where(steps_back < 0, num_buckets, 0)
    distance = np.abs(steps_back) if bidirectional else np.maximum(steps_back, 0)
    singles = num_buckets // 2
    # The dtypes decide which side of a bucket's edge a distance is on: float32 logarithm, float64 ratio.
    excess = np.log(distance.astype(np.float32) / singles + np.finfo(np.float32).eps)
    growth = excess / np.log(max_distance / singles) * (num_buckets - singles)
    wide = np.minimum(singles + growth.astype(np.int32), num_buckets - 1)
    return first + np.where(distance < singles, distance, wide)


class RelativePositionBiases(nn.Module):
    """The bias that each head adds to its attention logits, by the distance between query and key.

    ``num_buckets`` distances are distinguished, and all from ``max_distance`` on are the same. The table is
    float32[num_heads, num_buckets], the biases have ``dtype``.
    """

    num_buckets: int
    max_distance: int
    num_heads: int
    dtype: Any
    embedding_init: Initializer = nn.linear.default_embed_init

    @nn.compact
    def __call__(self, qlen: int, klen: int, bidirectional: bool = True) -> Array:
        """Returns float[1, num_heads, qlen, klen] biases; ``bidirectional`` if queries see keys after them."""
        return self._biases(qlen, klen, bidirectional)

    @nn.nowrap
    def _biases(self, qlen: int, klen: int, bidirectional: bool) -> Array:
        shape = (self.num_heads, self.num_buckets)
        table = param_with_axes(
            "rel_embedding", self.embedding_init, shape, jnp.float32, axes=("heads", "relpos_buckets")
        )
        buckets = _relative_position_buckets(
            qlen, klen, bidirectional=bidirectional, num_buckets=self.num_buckets, max_distance=self.max_distance
        )
        # A product with one-hot vectors instead of indexing, because the scatter of its gradient is slow on TPUs.
        # Made on the device: as a constant it would be in the program once for each layer, 16 MiB for 512 tokens.
        numbers = lax.broadcasted_iota(jnp.int32, (self.num_buckets, 1, 1), 0)
        one_hot = (jnp.asarray(buckets) == numbers).astype(self.dtype)
        return jnp.tensordot(table.astype(self.dtype), one_hot, axes=1)[None]


def make_attention_mask(
    query_input: Array,
    key_input: Array,
    pairwise_fn: Callable[[Array, Array], Array] = jnp.multiply,
    extra_batch_dims: int = 0,
    dtype: DType = jnp.float32,
) -> Array:
    """Compares every query position with every key position: [1..., batch..., 1, qlen, klen], the last 1 for the heads.

    ``query_input`` describes the queries, [batch..., qlen], e.g. whether they are tokens or padding,
    ``key_input`` the same of the keys, and ``pairwise_fn`` makes the mask value of a pair. ``extra_batch_dims`` axes of
    size 1 come in front.
    """
    pairs = pairwise_fn(query_input[..., None, :, None], key_input[..., None, None, :])
    return pairs.reshape((1,) * extra_batch_dims + pairs.shape).astype(dtype)


def make_causal_mask(x: Array, extra_batch_dims: int = 0, dtype: DType = jnp.float32) -> Array:
    """Lets every position attend to itself and to all before it; only the shape of ``x`` is used.

    That is [batch..., length], and the mask [1..., batch..., 1, length, length].
    """
    positions = jnp.broadcast_to(jnp.arange(x.shape[-1]), x.shape)
    return make_attention_mask(positions, positions, jnp.greater_equal, extra_batch_dims, dtype)


def _given(arrays: Sequence[Array | None]) -> list[Array]:
    """Drops the Nones, and checks that the others have the same rank."""
    given = [array for array in arrays if array is not None]
    if len({array.ndim for array in given}) > 1:
        raise AssertionError(f"masks and biases must have the same rank, got shapes {[a.shape for a in given]}")
    return given


def combine_masks(*masks: Array | None, dtype: DType = jnp.float32) -> Array | None:
    """Combines masks of the same rank by a logical and; ignores Nones, and returns None if there is no mask."""
    given = _given(masks)
    return functools.reduce(jnp.logical_and, given).astype(dtype) if given else None


def combine_biases(*masks: Array | None) -> Array | None:
    """Adds up attention biases of the same rank; ignores Nones, and returns None if there is no bias."""
    given = _given(masks)
    return functools.reduce(operator.add, given) if given else None


def make_decoder_mask(
    decoder_target_tokens: Array,
    dtype: Any,
    decoder_causal_attention: Array | None = None,
    decoder_segment_ids: Array | None = None,
) -> Array:
    """Makes the mask of a decoder's self-attention: causal, without padding, within packed sequences.

    All are int[batch, length]: ``decoder_target_tokens`` has zeros as padding, ``decoder_causal_attention`` is 1 at the
    positions of a prefix that see each other in both directions (prefix language models), and ``decoder_segment_ids``
    gives the packed sequence of each position. The mask is [batch, 1, length, length].
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
