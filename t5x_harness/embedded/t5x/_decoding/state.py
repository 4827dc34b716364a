"""What a decoder hands to the model at every step, and the numbers both decoders share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import numpy as np
from flax.core import FrozenDict, freeze

PyTree = Any
Cache = Mapping[str, Any]

# Finite, so that sums and products of masked scores never become NaN.
NEG_INF_VALUE = -1.0e7
NEG_INF = np.array(NEG_INF_VALUE)


@flax.struct.dataclass
class DecodingState:
    """What the model sees when it is asked for the next token. A row is one sequence, or one beam of one sequence.

    Attributes:
      cur_index: int32 scalar or int32[rows], position of `cur_token`.
      sequences: int32[rows, length], the tokens so far.
      cur_token: int32[rows, 1], the token to go on from.
      cache: The model's autoregressive cache.
    """

    cur_index: jax.Array
    sequences: jax.Array
    cur_token: jax.Array
    cache: Cache


TokensToLogits = Callable[[DecodingState], tuple[jax.Array, Cache]]


def like_cache(new: Cache, old: Cache) -> Cache:
    """Freezes `new` if `old` is frozen: a loop must keep the type of what it carries, and Flax mixes the two."""
    return freeze(new) if isinstance(old, FrozenDict) else new
