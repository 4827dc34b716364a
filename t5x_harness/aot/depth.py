"""Stacks of equal layers at a few depths, and what that says of their full depth: straight lines.

Where every stack has as many layers as the others, two depths give the line.  Otherwise there is one depth of all, and
one more for each stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from t5x_harness.aot.request import Stack

LOW, HIGH = 4, 8
"""Layers of each stack: even, as models may alternate between two kinds, and so many that the ends do not meet."""


def depths_of(stacks: Sequence[Stack]) -> list[dict[str, int]]:
    """Returns the layers of each stack, by binding, for each compilation; empty where all layers are compiled at once.

    Args:
      stacks: those of the config.
    """
    if not stacks or any(stack.layers <= HIGH for stack in stacks):
        return []
    low = {stack.binding: LOW for stack in stacks}
    if len({stack.layers for stack in stacks}) == 1:
        return [low, {stack.binding: HIGH for stack in stacks}]
    return [low, *({**low, stack.binding: HIGH} for stack in stacks)]


def weights_of(stacks: Sequence[Stack], depths: Sequence[Mapping[str, int]]) -> list[float]:
    """Returns what each depth counts for at the full one; they add up to 1.

    Args:
      stacks: those of the config.
      depths: what :func:`depths_of` gave.
    """
    if not depths:
        return [1.0]
    if len(depths) == 2 and len(set(depths[1].values())) == 1:
        further = [(stacks[0].layers - LOW) / (HIGH - LOW)]
    else:
        further = [(stack.layers - LOW) / (HIGH - LOW) for stack in stacks]
    return [1 - sum(further), *further]


def at_full_depth(values: Sequence[float], weights: Sequence[float]) -> float:
    """Returns a quantity at the full depth, from the same quantity at each of some depths."""
    return sum(value * weight for value, weight in zip(values, weights, strict=True))
