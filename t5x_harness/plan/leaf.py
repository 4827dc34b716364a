"""One array of a train state as a shape: what it is called, how it is cut, what is left on a device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of the train state.

    Attributes:
      path: its name in a checkpoint, such as ``target/encoder/layers_0/mlp/wi/kernel``.
      shape: dimensions.
      dtype: element type.
      spec: for each dimension the mesh axes that cut it; shorter than the shape where the rest is whole.
      names: logical axis names, as long as they are known.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: tuple[Any, ...]
    names: tuple[str | None, ...]

    @property
    def name(self) -> str:
        """Its name as the model's author knows it: a parameter's without ``target/``."""
        return self.path.removeprefix("target/")

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def cuts(self, mesh: Mapping[str, int]) -> Iterator[tuple[int, int, int, str]]:
        """Yields every cut dimension: index, size, parts, and the mesh axes' names."""
        for index, (size, axes) in enumerate(zip(self.shape, self.spec, strict=False)):
            names = axes if isinstance(axes, tuple) else (axes,) if axes else ()
            parts = math.prod(mesh[name] for name in names)
            if parts > 1:
                yield index, size, parts, " x ".join(names)

    def device_shape(self, mesh: Mapping[str, int]) -> tuple[int, ...]:
        """Dimensions of the part on each device; of the largest part where a cut is uneven."""
        shape = list(self.shape)
        for index, size, parts, _ in self.cuts(mesh):
            shape[index] = math.ceil(size / parts)
        return tuple(shape)

    def device_bytes(self, mesh: Mapping[str, int]) -> int:
        """Bytes on each device."""
        return math.prod(self.device_shape(mesh)) * self.dtype.itemsize
