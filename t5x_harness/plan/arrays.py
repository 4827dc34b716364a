"""The arrays of a train state as shapes: how the mesh cuts them, and tables in which equal layers share a row."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.text import Bytes, Count, Table, columns

if TYPE_CHECKING:
    import numpy as np  # lint and the plugin start without it

TEMPORARIES_UNKNOWN = "activations and temporaries: their memory is known only to the TPU compiler, which --aot asks"
"""The question that a plan leaves open; the aot stage answers it."""

_NUMBERED = re.compile(r"(?<![^/])(?!wi_)(\w+_)?\d+(?![^/])")
"""A part of a path that numbers a layer, such as ``layers_11``; a gated MLP has ``wi_0`` and ``wi_1`` in one layer."""

_LAYER = "*"
_SHOWN_DEPTH = 2
"""The number of parts of a path that name a module outside of layers."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of the train state.

    Attributes:
      path: its name in a checkpoint, such as ``target/encoder/layers_0/mlp/wi/kernel``.
      shape: the dimensions.
      dtype: the element type.
      spec: for each dimension, the mesh axes that cut it; shorter than the shape if the last dimensions are not cut.
      names: the logical axis names that are known.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: tuple[Any, ...]
    names: tuple[str | None, ...]

    @property
    def name(self) -> str:
        """The name that the model's author knows, without ``target/``."""
        return self.path.removeprefix("target/")

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def cuts(self, mesh: Mapping[str, int]) -> Iterator[tuple[int, int, int, str]]:
        """Yields every dimension that is cut: index, size, number of parts, and the mesh axes' names."""
        for index, (size, axes) in enumerate(zip(self.shape, self.spec, strict=False)):
            names = axes if isinstance(axes, tuple) else (axes,) if axes else ()
            parts = math.prod(mesh[name] for name in names)
            if parts > 1:
                yield index, size, parts, " x ".join(names)

    def device_shape(self, mesh: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the dimensions of the part on each device, or of the largest part if a cut is uneven."""
        shape = list(self.shape)
        for index, size, parts, _ in self.cuts(mesh):
            shape[index] = math.ceil(size / parts)
        return tuple(shape)

    def device_bytes(self, mesh: Mapping[str, int]) -> int:
        """Returns the bytes on each device."""
        return math.prod(self.device_shape(mesh)) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Folded:
    """Arrays that differ only in the number of their layer.

    Attributes:
      path: their common name, ``*`` in place of the layer's number, such as ``encoder/layers_*/mlp/wo/kernel``.
      leaf: one of them.
      count: the number of arrays.
    """

    path: str
    leaf: Leaf
    count: int

    @property
    def module(self) -> str:
        """The module under which it is shown: its layers, such as ``encoder/layers_*``, or the module that holds it."""
        parts = self.path.split("/")
        layers = next((index for index, part in enumerate(parts) if _LAYER in part), None)
        return "/".join(parts[: layers + 1] if layers is not None else parts[:-1][:_SHOWN_DEPTH])


def fold(leaves: Iterable[Leaf]) -> tuple[Folded, ...]:
    """Groups equal arrays of equal layers, in the order of the first array of each group.

    Args:
      leaves: arrays of the train state.
    """
    groups: dict[tuple[object, ...], list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault((folded_path(leaf.name), leaf.shape, leaf.dtype, leaf.spec, leaf.names), []).append(leaf)
    return tuple(Folded(str(key[0]), same[0], len(same)) for key, same in groups.items())


def folded_path(path: str) -> str:
    """Replaces the number of a layer by ``*``: ``decoder/layers_1/mlp/wo`` is ``decoder/layers_*/mlp/wo``.

    Only the outermost number counts layers: blocks inside a layer are not layers.
    """
    return _NUMBERED.sub(lambda part: f"{part[1] or ''}{_LAYER}", path, count=1)


def module_table(arrays: Sequence[Folded]) -> Table:
    """Returns the parameters by module: its numbers of arrays and elements, and its share of the model."""
    total = sum(array.count * array.leaf.size for array in arrays)
    rows = []
    modules: dict[str, list[Folded]] = {}
    for array in arrays:
        modules.setdefault(array.module, []).append(array)
    for module, inside in modules.items():
        elements = sum(array.count * array.leaf.size for array in inside)
        number = sum(array.count for array in inside)
        share = f"{elements / total:.1%}" if total else "-"
        counts = sorted({array.count for array in inside if _LAYER in array.path})
        layers = " to ".join(str(n) for n in counts if n in (counts[0], counts[-1]))  # not every layer has all arrays
        rows.append((module or "-", layers, number, Count(elements), share))
    rows.append(("all", "", sum(array.count for array in arrays), Count(total), ""))
    return columns(rows, ("module", "layers", "arrays", "parameters", "share"))


def array_tables(arrays: Sequence[Folded], mesh: Mapping[str, int]) -> dict[str, Table]:
    """Returns the arrays of each module: their sizes by logical axis, the axes that cut them, and the bytes per device.

    Args:
      arrays: the arrays to show.
      mesh: devices by mesh axis.

    Returns:
      Tables by title, such as ``arrays of encoder/layers_*, 24 of each, float32``; one table has all other modules.
    """
    tables = {}
    modules: dict[str, list[Folded]] = {}
    for array in arrays:
        modules.setdefault(array.module if _LAYER in array.path else "", []).append(array)
    outside = " outside of layers" if len(modules) > 1 else ""
    for module, inside in modules.items():
        types = sorted({str(array.leaf.dtype) for array in inside})
        counts = sorted({array.count for array in inside})
        rows = [_row(array, module, mesh, with_count=len(counts) > 1, with_type=len(types) > 1) for array in inside]
        head = ["array", "size by axis", "cut by", "on a device", "bytes"]
        head[1:1] = ["times"] * (len(counts) > 1)
        head[-1:-1] = ["type"] * (len(types) > 1)
        times = f", {counts[0]} of each" if len(counts) == 1 and counts[0] > 1 else ""
        kind = f", {types[0]}" if len(types) == 1 else ""
        tables[f"arrays{f' of {module}' if module else outside}{times}{kind}"] = columns(rows, head)
    return tables


def _row(array: Folded, module: str, mesh: Mapping[str, int], *, with_count: bool, with_type: bool) -> list[object]:
    leaf = array.leaf
    names = [*leaf.names, *[None] * (len(leaf.shape) - len(leaf.names))]
    axes = [axes if isinstance(axes, tuple) else (axes,) if axes else () for axes in leaf.spec]
    axes += [()] * (len(leaf.shape) - len(axes))
    row: list[object] = [
        array.path.removeprefix(f"{module}/"),
        ", ".join(f"{name} {size}" if name else str(size) for name, size in zip(names, leaf.shape, strict=True)) or "1",
        ", ".join("+".join(cut) or "-" for cut in axes) or "-",
        "x".join(map(str, leaf.device_shape(mesh))) or "1",
        Bytes(leaf.device_bytes(mesh)),
    ]
    row[1:1] = [array.count] * with_count
    row[-1:-1] = [leaf.dtype] * with_type
    return row
