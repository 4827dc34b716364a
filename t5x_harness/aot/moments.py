"""The moments of a step that exist at every depth, and the one with the most memory in use at the full depth.

What is live at a moment grows by the same bytes with each further layer. But moments grow differently: the one with the
most live bytes at few layers need not have them at many. So each moment is extrapolated by itself.

A moment is known by JAX's name of the instruction that the device runs, with layers counted from the nearer end of
their stack: the first is ``layers_0``, the last ``layers_-1``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from t5x_harness.aot.buffers import BufferAssignment
from t5x_harness.aot.depth import LOW, at_full_depth
from t5x_harness.aot.program_text import HloProgram

_NUMBERED = re.compile(r"(.*?/\w+_)(\d+)(/.*)")
_EDGE = LOW // 2
"""How many layers at either end of a stack are known by name: all of them at the lowest depth."""

_HALF = 0.5
"""The least part of a depth's peak that makes a moment comparable: the compiler orders lower ones as it likes."""


def moments_of(program: HloProgram, assignment: BufferAssignment) -> dict[str, int]:
    """Numbers a program's moments in its sequence, by name; of equal names, the moment with the most live bytes."""
    run = (program.instructions.get(name) for name in assignment.sequence)
    named = [(name, _NUMBERED.fullmatch(name)) for name in (each.op_name if each else "" for each in run)]
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
    """Names a moment in a layer by the nearer end of the stack; empty for a layer in between."""
    layer = int(part[2])
    if layer < _EDGE:
        return part[0]
    return f"{part[1]}{layer - depth}{part[3]}" if layer >= depth - _EDGE else ""
