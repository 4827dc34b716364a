"""Extrapolates stacks of equal layers linearly from a few depths to the full depth.

If all deep stacks have the same number of layers, two depths determine the line. Otherwise there is one depth of all,
and one more for each stack.

The live memory at a moment of a step grows by the same bytes with each further layer. But moments grow differently: the
one with the most live bytes at few layers need not have them at many. So each moment is extrapolated by itself. A
moment is known by JAX's name of the instruction that the device runs, with layers counted from the nearer end of their
stack: the first is ``layers_0``, the last ``layers_-1``.
"""

import re
from collections.abc import Mapping, Sequence

from t5x_harness.aot.buffers import BufferAssignment
from t5x_harness.aot.program_text import HloProgram

LOW, HIGH = 2, 6
"""Layers of each stack: even, as models may alternate between two kinds. A wider gap is slower and more exact."""


def depths_of(stacks: Mapping[str, int]) -> tuple[list[dict[str, int]], list[float]]:
    """Chooses the depths to compile, and the weight of each in a sum that yields the full depth; weights add up to 1.

    Stacks with few layers keep all of them.

    Args:
      stacks: the layers of each stack at full depth, by binding.

    Returns:
      The layers by binding for each depth, and the weights; no depths if all layers are compiled at once.
    """
    deep = {binding: layers for binding, layers in stacks.items() if layers > HIGH}
    if not deep:
        return [], [1.0]
    low = {**stacks, **dict.fromkeys(deep, LOW)}
    groups = [[*deep]] if len({*deep.values()}) == 1 else [[binding] for binding in deep]
    weights = [(stacks[group[0]] - LOW) / (HIGH - LOW) for group in groups]
    higher = [low | dict.fromkeys(group, HIGH) for group in groups]
    return [low, *higher], [1 - sum(weights), *weights]


def at_full_depth(values: Sequence[float], weights: Sequence[float]) -> int:
    """Extrapolates a quantity from its values at each depth; it is never below 0."""
    return max(0, round(sum(value * weight for value, weight in zip(values, weights, strict=True))))


_NUMBERED = re.compile(r"(.*?/\w+_)(\d+)(/.*)")
_EDGE = LOW // 2
"""The number of layers at either end of a stack that are known by name: all of them at the lowest depth."""

_HALF = 0.5
"""The least part of a depth's peak that makes a moment comparable; the compiler may reorder lower moments."""


def moments_of(program: HloProgram, assignment: BufferAssignment) -> dict[str, int]:
    """Numbers a program's moments in its sequence by name; for equal names, the one with the most live bytes counts."""
    run = (program.instructions.get(name) for name in assignment.sequence)
    named = [(name, _NUMBERED.fullmatch(name)) for name in (each.op_name if each else "" for each in run)]
    depths: dict[str, int] = {}
    for _, part in named:
        if part is not None:
            depths[part[1]] = max(depths.get(part[1], 0), int(part[2]) + 1)
    live = assignment.live_bytes()
    found: dict[str, int] = {}
    for moment, (name, part) in enumerate(named):
        known = name
        if part is not None and (layer := int(part[2])) >= _EDGE:  # named from the other end, unless it is in between
            from_end = layer - depths[part[1]]
            known = f"{part[1]}{from_end}{part[3]}" if from_end >= -_EDGE else ""
        if known and (known not in found or live[moment] > live[found[known]]):
            found[known] = moment
    return found


def highest(depths: Sequence[Mapping[str, int]], weights: Sequence[float]) -> str | None:
    """Returns the name of the moment with the most memory in use at the full depth; None if no moment is comparable.

    Args:
      depths: the bytes of temporary values by moment, at each depth.
      weights: the weights of the depths.
    """
    least = [_HALF * max(live.values(), default=0) for live in depths]
    common = [
        name
        for name in depths[0]
        if all(name in live and live[name] >= low for live, low in zip(depths, least, strict=True))
    ]
    return max(common, key=lambda name: at_full_depth([live[name] for live in depths], weights), default=None)
