"""Moments that a step has at every depth, and which of them has the most memory in use at the full one.

What is live at a moment grows by the same bytes with each further layer; but moments grow differently, and the one that
has the most with few layers need not have it with many. So each moment is drawn out by itself.

Moments are known by JAX's names of what the device runs, with the layers at both ends of a stack: the first as
``layers_0``, the last as ``layers_-1``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from t5x_harness.aot.buffers import BufferAssignment
from t5x_harness.aot.depth import LOW, at_full_depth
from t5x_harness.aot.program_text import HloProgram

_NUMBERED = re.compile(r"(.*?/\w+_)(\d+)(/.*)")
_EDGE = LOW // 2
"""How many layers at either end of a stack are known by name: at the lowest depth all."""

_HALF = 0.5
"""Of the most that is live at a depth: where less is, the compiler may order things differently at the next depth."""


def moments_of(program: HloProgram, assignment: BufferAssignment) -> dict[str, int]:
    """Returns the numbers of a program's moments in its sequence, by name; of equal names that where most is live."""
    names = {each.name: each.op_name for c in program.computations.values() for each in c.instructions}
    named = [(name, _NUMBERED.fullmatch(name)) for name in (names.get(each, "") for each in assignment.sequence)]
    depths: dict[str, int] = {}
    for _, part in named:
        if part is not None:
            depths[part[1]] = max(depths.get(part[1], 0), int(part[2]) + 1)
    live = assignment.live_bytes()
    found: dict[str, int] = {}
    for moment, (name, part) in enumerate(named):
        known = name if part is None else _at_an_end(part, depths[part[1]])
        if known and (known not in found or live[moment] > live[found[known]]):
            found[known] = moment
    return found


def highest(depths: Sequence[Mapping[str, int]], weights: Sequence[float]) -> str | None:
    """Returns the name of the moment with the most memory in use at the full depth; None if no moment is comparable.

    Args:
      depths: bytes of temporary values by moment, at each depth.
      weights: of the depths; see :mod:`t5x_harness.aot.depth`.
    """
    least = [_HALF * max(live.values(), default=0) for live in depths]
    common = [
        name
        for name in depths[0]
        if all(name in live and live[name] >= low for live, low in zip(depths, least, strict=True))
    ]
    return max(common, key=lambda name: at_full_depth([live[name] for live in depths], weights), default=None)


def _at_an_end(part: re.Match[str], depth: int) -> str:
    """Returns the name of a moment in a layer, counted from the end that is nearer; empty for one in between."""
    layer = int(part[2])
    if layer < _EDGE:
        return part[0]
    return f"{part[1]}{layer - depth}{part[3]}" if layer >= depth - _EDGE else ""
