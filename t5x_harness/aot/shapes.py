"""Types of values in a compiled program, with the layout that the compiler gave them."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

HBM = 0
"""The number of the memory space of a device's large memory; other spaces are on the chip."""

_ARRAY = re.compile(r"(\w+)\[([\d,<=?]*)\](?:\{([^}]*)\})?")
_TILE = re.compile(r"\(([\d,*]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One array as the compiler lays it out.

    Attributes:
      dtype: XLA's name of the element type, such as ``bf16``.
      dims: sizes.
      minor_to_major: numbers of the dimensions, starting with the one whose elements are adjacent in memory.
      tiles: sizes of the tiles that memory is laid out in, outermost first; empty if there are none.
      space: number of the memory space, ``HBM`` or one on the chip.
    """

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = HBM

    @property
    def elements(self) -> int:
        """Elements of the array."""
        return math.prod(self.dims)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return bits_of(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of its elements without padding."""
        return -(-self.elements * self.bits // 8)

    @property
    def padded_bytes(self) -> int:
        """Bytes of its tiles, with the parts that hold nothing."""
        if not self.tiles:
            return self.bytes
        # Tiles cover the minor dimensions. A further tile divides the sizes of a tile, and pads them once more.
        sizes = [self.dims[number] for number in reversed(self.minor_to_major)]
        for tile in self.tiles:
            covered = min(len(tile), len(sizes))
            if len(tile) > len(sizes):
                sizes = [1] * (len(tile) - len(sizes)) + sizes
                covered = len(tile)
            outer, inner = sizes[: len(sizes) - covered], sizes[len(sizes) - covered :]
            counts = [-(-size // part) for size, part in zip(inner, tile, strict=True)]
            sizes = [*outer, *counts, *tile]
        return -(-math.prod(sizes) * self.bits // 8)

    @property
    def in_tiles(self) -> tuple[int, ...]:
        """Sizes padded to the outermost tiles; inner tiles divide these, or pad sizes of their own."""
        sizes = list(self.dims)
        tile = self.tiles[0] if self.tiles else ()
        for number, part in zip(self.minor_to_major, reversed(tile), strict=False):
            sizes[number] = -(-sizes[number] // part) * part
        return tuple(sizes)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


def bits_of(dtype: str) -> int:
    """Returns the bits of one element of a type, such as 16 for ``bf16``."""
    if dtype in _BITS:
        return _BITS[dtype]
    size = re.search(r"\d+", dtype)
    return int(size[0]) if size else 0


@functools.cache
def parse_arrays(text: str) -> tuple[Shape, ...]:
    """Parses a type such as ``bf16[8,128]{1,0:T(8,128)(2,1)S(1)}``, or the arrays of a tuple in order.

    Raises:
      ValueError: the text is neither an array nor a tuple.
    """
    arrays = tuple(_array(found) for found in _ARRAY.finditer(text))
    if not arrays and not text.lstrip().startswith("("):
        raise ValueError(f"not a type: {text[:80]}")
    return arrays


def _array(found: re.Match[str]) -> Shape:
    layout, _, rest = (found[3] or "").partition(":")
    dims = tuple(int(size.lstrip("<=")) for size in found[2].split(",") if size)
    order = _numbers(layout) or tuple(reversed(range(len(dims))))
    space = _SPACE.search(rest)
    return Shape(found[1], dims, order, _tiles(rest), int(space[1]) if space else HBM)


def _tiles(layout: str) -> tuple[tuple[int, ...], ...]:
    if not layout.startswith("T"):
        return ()
    tiles = re.match(r"T((?:\([\d,*]+\))+)", layout)
    return tuple(
        tuple(int(n) for n in tile.split(",") if n.isdigit()) for tile in _TILE.findall(tiles[1] if tiles else "")
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
