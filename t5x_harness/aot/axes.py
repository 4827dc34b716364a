"""Names for the sizes of arrays on a device, from the logical axes of the parameters and the lengths of the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.aot.request import ProgramSpec
    from t5x_harness.plan.arrays import Leaf

_HEADS, _KV, _HEADS_AND_KV = "heads", "kv", "joined_kv"
"""Logical axes of attention; networks whose parameters join heads and kv do not name kv alone."""

_LENGTHS = {"encoder": "length of inputs", "decoder": "length of targets"}


def axis_sizes(leaves: Iterable[Leaf], mesh: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Returns the sizes that the logical axes of parameters have on a device.

    Args:
      leaves: the leaves of the train state.
      mesh: devices by axis.
    """
    found: dict[str, set[int]] = {}
    for leaf in leaves:
        if leaf.path.startswith("target/"):
            for name, size in zip(leaf.names, leaf.device_shape(mesh), strict=False):
                if name:
                    found.setdefault(name, set()).add(size)
    joined, heads = found.get(_HEADS_AND_KV, set()), found.get(_HEADS, set())
    if _KV not in found and len(joined) == len(heads) == 1:
        (together,), (number,) = joined, heads
        if together % number == 0:
            found[_KV] = {together // number}
    return {name: tuple(sorted(sizes)) for name, sizes in found.items()}


def names_by_size(axes: Mapping[str, tuple[int, ...]], program: ProgramSpec) -> dict[int, str]:
    """Names sizes by their axes; several axes with the same size are joined with ``or``.

    Args:
      axes: sizes of the parameters' axes, as :func:`axis_sizes` returns them.
      program: the program whose arrays have these sizes.
    """
    named: dict[int, dict[str, None]] = {}
    sized = ((name, size) for name, sizes in axes.items() for size in sizes)
    for name, size in (*sized, *_of_batch(program)):
        named.setdefault(size, {})[name] = None
    return {size: " or ".join(names) for size, names in named.items()}


def _of_batch(program: ProgramSpec) -> Iterator[tuple[str, int]]:
    for feature, shape in program.shapes.items():
        if len(shape) > 1:
            yield _LENGTHS.get(feature.partition("_")[0], "length"), shape[1]
