"""One array of a train state as a shape: its name, how the mesh cuts it, and what each device holds."""

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
      spec: for each dimension, the mesh axes that cut it; shorter than the shape if the rest is whole.
      names: the logical axis names that are known.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: tuple[Any, ...]
    names: tuple[str | None, ...]

    @property
    def name(self) -> str:
        """Its name as the model's author knows it, without ``target/``."""
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
