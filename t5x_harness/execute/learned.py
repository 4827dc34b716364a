"""Whether training changed the parameters: where an optimizer's updates are nothing, T5X trains on in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

_SAMPLE = 4096
"""Values of each array that are compared: of a model that trains, all of them change in some array."""

_NOTHING = 1e-7
"""A change, in sizes of the array, that float32 hardly holds."""

_LEAST_RATE = 1e-5
"""Learning rates of all steps together, below which parameters may well stay as they are."""


def sampled(params: Any) -> list[np.ndarray[Any, Any]]:
    """Returns copies of the first values of each array, before T5X's train step takes its memory.

    Args:
      params: a tree of arrays.

    Returns:
      Nothing if this process does not hold all of them.
    """
    leaves = jax.tree.leaves(params)
    if not all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return []
    return [np.array(np.asarray(leaf).reshape(-1)[:_SAMPLE], np.float32) for leaf in leaves]


def largest_change(before: Sequence[np.ndarray[Any, Any]], after: Sequence[np.ndarray[Any, Any]]) -> float:
    """Returns by how much the array that changed most has changed, as a share of its own size.

    An array of zeros that is not zero any more has changed by 1 or more; NaN counts as a change.
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
    """Returns what to say of a training that changed no parameter although its learning rates say otherwise.

    Args:
      before: what :func:`sampled` returned before training.
      params: the parameters after it.
      rates: the learning rate of each step, as T5X wrote it.

    Returns:
      None if a parameter changed, or nothing can be said.
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
