"""Whether training changed the parameters: if an optimizer updates nothing, T5X silently goes on training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

_SAMPLE = 4096
"""How many values of each array are compared. In a model that trains, all values of some array change."""

_NOTHING = 1e-7
"""A change, relative to the array's size, that float32 can hardly represent."""

_LEAST_RATE = 1e-5
"""The sum of all steps' learning rates below which parameters may well stay the same."""


def sampled(params: Any) -> list[np.ndarray[Any, Any]]:
    """Copies the first values of each array, before T5X's train step reuses its memory.

    Args:
      params: a tree of arrays.

    Returns:
      The copies; none if this process does not hold all of the arrays.
    """
    leaves = jax.tree.leaves(params)
    if not all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return []
    return [np.array(np.asarray(leaf).reshape(-1)[:_SAMPLE], np.float32) for leaf in leaves]


def largest_change(before: Sequence[np.ndarray[Any, Any]], after: Sequence[np.ndarray[Any, Any]]) -> float:
    """Returns the largest change of any array, relative to the array's own size.

    The change of an array that was all zeros is 1 or more; NaN counts as a change.
    """
    return max((_change(one, other) for one, other in zip(before, after, strict=True)), default=0.0)


def _change(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> float:
    if before.shape != after.shape:
        return 1.0
    difference = np.linalg.norm(after - before)
    if not np.isfinite(difference):
        return 1.0
    size = float(np.linalg.norm(before)) or float(difference) or 1.0
    return float(difference) / size


def nothing_learnt(before: Sequence[np.ndarray[Any, Any]], params: Any, rates: Sequence[float]) -> str | None:
    """Describes a training that changed no parameter although its learning rates were not zero.

    Args:
      before: what :func:`sampled` returned before training.
      params: the parameters after it.
      rates: the learning rate of each step, as T5X wrote it.

    Returns:
      None if a parameter changed, or if that cannot be decided.
    """
    if not before or not rates or sum(rates) < _LEAST_RATE:
        return None
    change = largest_change(before, sampled(params))
    if change >= _NOTHING:
        return None
    return (
        f"training changed nothing: at learning rates up to {max(rates):.3g}, no parameter changed by more than "
        f"{change:.1g} of its size"
    )
