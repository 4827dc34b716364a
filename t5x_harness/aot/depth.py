"""Stacks of equal layers at a few depths, and the straight lines from these to the full depth.

Where every deep stack has as many layers as the others, two depths give the line. Otherwise there is one depth of all,
and one more for each stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from t5x_harness.aot.request import LayerStack

LOW, HIGH = 2, 6
"""Layers of each stack: even, as models may alternate between two kinds. Further apart is slower and more exact."""


def depths_of(stacks: Sequence[LayerStack]) -> list[dict[str, int]]:
    """Chooses the depths to compile: layers by binding for each; empty if all layers are compiled at once.

    Stacks of few layers keep them.
    """
    deep = _deep(stacks)
    if not deep:
        return []
    low = {stack.binding: LOW if stack in deep else stack.layers for stack in stacks}
    if len({stack.layers for stack in deep}) == 1:
        return [low, low | {stack.binding: HIGH for stack in deep}]
    return [low, *(low | {stack.binding: HIGH} for stack in deep)]


def weights_of(stacks: Sequence[LayerStack], depths: Sequence[Mapping[str, int]]) -> list[float]:
    """Returns the weight of each depth in a sum that is the full depth; they add up to 1.

    Args:
      stacks: the config's stacks.
      depths: the result of :func:`depths_of`.
    """
    # Two depths are enough where all deep stacks have the same number of layers.
    further = [(stack.layers - LOW) / (HIGH - LOW) for stack in _deep(stacks)][: max(0, len(depths) - 1)]
    return [1 - sum(further), *further]


def at_full_depth(values: Sequence[float], weights: Sequence[float]) -> int:
    """Extrapolates a quantity from its values at each depth; it is never below 0."""
    return max(0, round(sum(value * weight for value, weight in zip(values, weights, strict=True))))


def _deep(stacks: Sequence[LayerStack]) -> list[LayerStack]:
    return [stack for stack in stacks if stack.layers > HIGH]
