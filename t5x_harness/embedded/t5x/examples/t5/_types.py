"""Type aliases and the logical axis names of activations that the layers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax.linen import partitioning

Array = jax.Array
DType = Any
PRNGKey = jax.Array
Shape = Sequence[int]
Activation = Callable[..., Array]
Initializer = Callable[[PRNGKey, Shape, DType], Array]

# Parameters and activations carry logical axis names; the partitioner's rules map those to mesh axes.
param_with_axes = partitioning.param_with_axes
with_sharding_constraint = partitioning.with_sharding_constraint
