"""Moving arrays and caches between "one row a sequence" and "several beams a sequence"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util
from flax.core import FrozenDict, unfreeze
from jax import lax
from t5x._decoding.state import Cache, PyTree, like_cache

# Cache entries that all rows share, so they have no batch axis to work on.
_SHARED_ENTRIES = frozenset({"cached_bias", "position_embedder_index"})
_INDEX_ENTRY = "cache_index"
_TPU_LANES = 128


def brevity_penalty(alpha: float, length: int | jax.Array) -> jax.Array:
    """The divisor that lets long sequences compete with short ones: ((5 + length) / 6) ** alpha.

    Args:
      alpha: How much length is forgiven; 0 turns the penalty off.
      length: Tokens of the sequence, as a number or an array.

    Returns:
      The divisor of a summed log probability, of the shape of `length`. From Wu et al. 2016, arXiv:1609.08144.
    """
    return jnp.power((5.0 + length) / 6.0, alpha)


def cache_map(fn: Callable[[jax.Array], Any], cache: Cache, apply_to_index: bool = False) -> Cache:
    """Applies `fn` to the cache entries that have a batch axis.

    Args:
      fn: From one array to another.
      cache: A nested dict, frozen or not.
      apply_to_index: Whether `cache_index` entries have a batch axis too, which they have after a prefill.

    Returns:
      A cache of the same structure and type, with entries that all rows share left as they are.
    """
    left_alone = _SHARED_ENTRIES if apply_to_index else _SHARED_ENTRIES | {_INDEX_ENTRY}
    plain = unfreeze(cache) if isinstance(cache, FrozenDict) else cache
    mapped = {
        path: value if path[-1] in left_alone else jax.tree.map(fn, value)
        for path, value in traverse_util.flatten_dict(plain).items()
    }
    return like_cache(traverse_util.unflatten_dict(mapped), cache)


def add_beam_dim(x: jax.Array, beam_size: int, offset: int = 0) -> jax.Array:
    """Repeats every row `beam_size` times: [batch, ...] becomes [batch, beam, ...].

    Args:
      x: An array with a batch axis.
      beam_size: How often to repeat.
      offset: Where the batch axis is; 1 for caches of scanned layers.

    Returns:
      The array with a beam axis right after the batch axis.
    """
    axis = offset + 1
    shape = (*x.shape[:axis], beam_size, *x.shape[axis:])
    return jnp.broadcast_to(jnp.expand_dims(x, axis), shape)


def flatten_beam_dim(x: jax.Array, offset: int = 0) -> jax.Array:
    """Merges the batch and the beam axis: [batch, beam, ...] becomes [batch * beam, ...]; see `add_beam_dim`."""
    batch, beams = x.shape[offset : offset + 2]
    return x.reshape(*x.shape[:offset], batch * beams, *x.shape[offset + 2 :])


def unflatten_beam_dim(x: jax.Array, batch_size: int, beam_size: int, offset: int = 0) -> jax.Array:
    """Splits rows into sequences and beams: [batch * beam, ...] becomes [batch, beam, ...].

    Args:
      x: An array whose rows are beams of sequences, all beams of a sequence together.
      batch_size: Number of sequences.
      beam_size: Beams of each.
      offset: Where the batch axis is.

    Returns:
      The array with batch and beam axes.

    Raises:
      AssertionError: The number of rows is not `batch_size * beam_size`.
    """
    rows = x.shape[offset]
    if rows != batch_size * beam_size:
        raise AssertionError(f"{rows} rows cannot be split into {batch_size} sequences of {beam_size} beams")
    return x.reshape(*x.shape[:offset], batch_size, beam_size, *x.shape[offset + 1 :])


def flat_batch_beam_expand(x: jax.Array, beam_size: int, offset: int = 0) -> jax.Array:
    """Repeats every row `beam_size` times in place: [batch, ...] becomes [batch * beam, ...]; see `add_beam_dim`."""
    return flatten_beam_dim(add_beam_dim(x, beam_size, offset), offset)


def _beam_picker(
    beam_indices: jax.Array, batch_size: int, old_beam_size: int, new_beam_size: int, one_hot: bool, offset: int = 0
) -> Callable[[jax.Array], jax.Array]:
    """Makes the function that picks beams of one array; arguments as in `cache_gather_beams`."""
    if offset not in (0, 1):
        raise AssertionError(f"the batch axis must be the first or the second, but offset is {offset}")
    if one_hot:
        # A contraction, which TPUs do much faster than a gather.
        chosen = jax.nn.one_hot(beam_indices, old_beam_size, dtype=jnp.int32)
        equation = "bno,bo...->bn..." if offset == 0 else "bno,lbo...->lbn..."
        return lambda x: jnp.einsum(equation, chosen, x).astype(x.dtype)
    rows = jnp.broadcast_to(jnp.arange(batch_size)[:, None], (batch_size, new_beam_size))
    return lambda x: x[(slice(None),) * offset + (rows, beam_indices)]


def cache_gather_beams(
    nested: Cache,
    beam_indices: jax.Array,
    batch_size: int,
    old_beam_size: int,
    new_beam_size: int,
    one_hot: bool = True,
    offset: int = 0,
) -> Cache:
    """Picks beams of every entry of a cache.

    Args:
      nested: A cache whose entries have shape [batch, old_beam, ...]; entries that all rows share are kept.
      beam_indices: int[batch, new_beam], which old beam each new one continues.
      batch_size: Number of sequences.
      old_beam_size: Beams before.
      new_beam_size: Beams after.
      one_hot: Whether to pick by a matrix product (fast on TPU) instead of by indexing. The values are the same.
      offset: Where the batch axis is, 0 or 1.

    Returns:
      A cache whose entries have shape [batch, new_beam, ...].

    Raises:
      AssertionError: `offset` is neither 0 nor 1.
    """
    return cache_map(_beam_picker(beam_indices, batch_size, old_beam_size, new_beam_size, one_hot, offset), nested)


def gather_beams(
    nested: PyTree,
    beam_indices: jax.Array,
    batch_size: int,
    old_beam_size: int,
    new_beam_size: int,
    one_hot: bool = True,
) -> PyTree:
    """Picks beams of every array of a tree; as `cache_gather_beams`, with no array left out."""
    return jax.tree.map(_beam_picker(beam_indices, batch_size, old_beam_size, new_beam_size, one_hot), nested)


def gather_topk_beams(nested: PyTree, score_or_log_prob: jax.Array, batch_size: int, new_beam_size: int) -> PyTree:
    """Picks the beams with the best scores, the best one last.

    Args:
      nested: A tree of arrays of shape [batch, beam, ...].
      score_or_log_prob: float[batch, beam].
      batch_size: Number of sequences.
      new_beam_size: How many beams to keep.

    Returns:
      The tree with arrays of shape [batch, new_beam, ...].
    """
    best_first = lax.top_k(score_or_log_prob, new_beam_size)[1]
    return gather_beams(nested, best_first[:, ::-1], batch_size, score_or_log_prob.shape[1], new_beam_size)


def top_k_two_stage(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k largest values of every row, in two passes where TPUs gain from it.

    A small batch of long rows leaves most lanes of a TPU idle. So each row is cut into one piece a lane, and the best
    of the pieces compete in a second pass. The result is that of `jax.lax.top_k`, ties included.

    Args:
      x: float[batch, length].
      k: How many to find.

    Returns:
      float[batch, k] values in descending order and int32[batch, k] positions.
    """
    batch, length = x.shape
    if batch > 8 or length <= 8 * _TPU_LANES * k:
        return lax.top_k(x, k)
    pieces = jnp.pad(x, ((0, 0), (0, -length % _TPU_LANES)), constant_values=-jnp.inf).reshape(batch, _TPU_LANES, -1)
    values, positions = lax.top_k(pieces, k)
    positions += pieces.shape[-1] * jnp.arange(_TPU_LANES)[:, None]
    values, winners = lax.top_k(values.reshape(batch, -1), k)
    return values, jnp.take_along_axis(positions.reshape(batch, -1), winners, axis=1)
