"""Token embeddings and relative position biases."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from t5x.examples.t5._types import Array, DType, Initializer, param_with_axes, with_sharding_constraint

default_embed_init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


class Embed(nn.Module):
    """A table of token vectors, which can also turn vectors back into logits.

    Attributes:
      num_embeddings: Number of tokens.
      features: Size of a vector.
      cast_input_dtype: What token ids are cast to first, if anything.
      dtype: In what to look up.
      attend_dtype: In what to compute logits; `dtype` if None.
      embedding_init: Initialises the float32 table.
      one_hot: Whether to look up by a matrix product with one-hot vectors, which TPUs prefer, instead of by indexing.
      embedding: The table, float32[num_embeddings, features].
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
        """Looks up the vectors of tokens.

        Args:
          inputs: int[batch, length] token ids.

        Returns:
          float[batch, length, features].

        Raises:
          ValueError: The ids are not integers.
        """
        if self.cast_input_dtype:
            inputs = inputs.astype(self.cast_input_dtype)
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(f"token ids must be integers, but their dtype is {inputs.dtype}")
        table = self.embedding.astype(self.dtype)
        if self.one_hot:
            return jax.nn.one_hot(inputs, self.num_embeddings, dtype=self.dtype) @ table
        return with_sharding_constraint(table[inputs], ("batch", "length", "embed"))

    def attend(self, query: Array) -> Array:
        """Multiplies float[..., features] with every token's vector: float[..., num_embeddings]."""
        dtype = self.dtype if self.attend_dtype is None else self.attend_dtype
        return query @ self.embedding.astype(dtype).T


def relative_position_buckets(
    qlen: int, klen: int, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> np.ndarray:
    """Sorts all pairs of a query and a key position into buckets by their distance.

    Half of the buckets hold one small distance each. The others grow in proportion to the distance, up to
    `max_distance`; the last one holds all that is farther. When keys after the query count too, they get the upper half
    of all buckets; otherwise they share bucket 0 with distance 0.

    Args:
      qlen: Number of query positions.
      klen: Number of key positions.
      bidirectional: Whether keys after the query have buckets of their own.
      num_buckets: Number of buckets.
      max_distance: From what distance on all share a bucket.

    Returns:
      int[qlen, klen] bucket numbers. From Raffel et al. 2019, arXiv:1910.10683, section 2.1.
    """
    steps_back = np.arange(qlen, dtype=np.int32)[:, None] - np.arange(klen, dtype=np.int32)
    first: int | np.ndarray = 0
    if bidirectional:
        num_buckets //= 2
        first = np.where(steps_back < 0, num_buckets, 0)
    distance = np.abs(steps_back) if bidirectional else np.maximum(steps_back, 0)
    singles = num_buckets // 2
    # The dtypes decide on which side of a bucket's edge a distance falls: float32 logarithm, float64 ratio.
    excess = np.log(distance.astype(np.float32) / singles + np.finfo(np.float32).eps)
    growth = excess / np.log(max_distance / singles) * (num_buckets - singles)
    wide = np.minimum(singles + growth.astype(np.int32), num_buckets - 1)
    return first + np.where(distance < singles, distance, wide)


class RelativePositionBiases(nn.Module):
    """What each head adds to its attention logits, depending on how far query and key are apart.

    Attributes:
      num_buckets: Number of distances that are distinguished, see `relative_position_buckets`.
      max_distance: From what distance on all are the same.
      num_heads: Number of attention heads.
      dtype: Of the biases.
      embedding_init: Initialises the float32[num_heads, num_buckets] table.
    """

    num_buckets: int
    max_distance: int
    num_heads: int
    dtype: Any
    embedding_init: Initializer = nn.linear.default_embed_init

    @nn.compact
    def __call__(self, qlen: int, klen: int, bidirectional: bool = True) -> Array:
        """Returns float[1, num_heads, qlen, klen] biases.

        Args:
          qlen: Number of query positions.
          klen: Number of key positions.
          bidirectional: Whether queries see keys after them.
        """
        shape = (self.num_heads, self.num_buckets)
        table = param_with_axes(
            "rel_embedding", self.embedding_init, shape, jnp.float32, axes=("heads", "relpos_buckets")
        )
        buckets = relative_position_buckets(
            qlen, klen, bidirectional=bidirectional, num_buckets=self.num_buckets, max_distance=self.max_distance
        )
        # A product with one-hot vectors instead of indexing, because TPUs are slow at the scatter of its gradient.
        one_hot = (buckets == np.arange(self.num_buckets)[:, None, None]).astype(self.dtype)
        return jnp.tensordot(table.astype(self.dtype), one_hot, axes=1)[None]
