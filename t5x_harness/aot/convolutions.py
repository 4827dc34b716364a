"""Floating-point operations of products: the TPU compiler writes every one as a convolution."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_harness.aot.instructions import Instruction
    from t5x_harness.aot.shapes import Shape

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_FIELD = re.compile(r"(\w+)=(\S+)")


@dataclasses.dataclass(frozen=True)
class ProductSize:
    """Products of the same sizes, in one run of a program on one device.

    Attributes:
      contracted: how many products each element of the result is the sum of.
      sides: sizes of both sides of the result.
      count: how often one runs.
      flops: of all of them.
    """

    contracted: int
    sides: tuple[int, int]
    count: int
    flops: int

    def filled(self, unit: int) -> float:
        """Returns the part of a matrix unit that such a product fills at most.

        The unit holds ``unit`` by ``unit`` numbers of one operand, with the contracted dimension on one side; which
        operand that is, the compiler chooses, so the better side counts. Zeros fill up the rest.
        """
        return _filled(self.contracted, unit) * max(_filled(side, unit) for side in self.sides)


@dataclasses.dataclass(frozen=True)
class _Window:
    """How a convolution's kernel moves along one dimension."""

    size: int = 1
    stride: int = 1
    before: int = 0
    input_dilation: int = 1
    kernel_dilation: int = 1


def product_flops(instruction: Instruction, left: Shape, right: Shape) -> int:
    """Returns the operations of a ``dot`` or ``convolution``: two for each pair of elements.

    A pair is multiplied and added. Pairs with padding, or with holes between a dilated input's elements, do not count.

    Args:
      instruction: the product.
      left: shape of its first operand.
      right: shape of its second.
    """
    (result,) = instruction.arrays
    if instruction.opcode == "dot":
        contracted = re.findall(r"\d+", instruction.text("lhs_contracting_dims") or "")
        return 2 * result.elements * math.prod(left.dims[int(number)] for number in contracted)
    labels = _LABELS.match(instruction.text("dim_labels") or "")
    if labels is None:
        return 0
    sizes = {letter: left.dims[at] for at, letter in enumerate(labels[1])}
    outputs = {letter: result.dims[at] for at, letter in enumerate(labels[3])}
    pairs = sizes["b"] * sizes["f"] * outputs["f"]
    for key in ("feature_group_count", "batch_group_count"):
        pairs //= int(instruction.text(key) or 1)
    for number, window in enumerate(_windows(instruction.text("window") or "", len(labels[1]) - 2)):
        pairs *= _positions(sizes[str(number)], outputs[str(number)], window)
    return 2 * pairs


def product_size(instruction: Instruction, left: Shape, right: Shape) -> ProductSize | None:
    """Returns the sizes of one ``dot`` or ``convolution``; None for one without operations.

    Arguments are those of :func:`product_flops`. All positions of a kernel that meet one element of the result count
    as contracted together, as the compiler may join them.
    """
    (result,) = instruction.arrays
    flops = product_flops(instruction, left, right)
    contracted = flops // (2 * result.elements)
    if not contracted:
        return None
    labels = _LABELS.match(instruction.text("dim_labels") or "")
    if labels is None:
        return ProductSize(contracted, (left.elements // contracted, right.elements // contracted), 1, flops)
    features = result.dims[labels[3].index("f")]
    return ProductSize(contracted, (result.elements // features, features), 1, flops)


def _filled(size: int, unit: int) -> float:
    return size / (-(-size // unit) * unit)


def _windows(text: str, count: int) -> list[_Window]:
    """Returns the window of each dimension; ``size=16x1 stride=15x1 pad=0_0x0_0`` has two."""
    fields = {key: value.split("x") for key, value in _FIELD.findall(text.strip("{}"))}

    def at(key: str, number: int, default: int) -> int:
        return int(fields[key][number].partition("_")[0]) if key in fields else default

    return [
        _Window(
            at("size", number, 1),
            at("stride", number, 1),
            at("pad", number, 0),
            at("lhs_dilate", number, 1),
            at("rhs_dilate", number, 1),
        )
        for number in range(count)
    ]


@functools.cache
def _positions(size: int, results: int, window: _Window) -> int:
    """Returns how many pairs of a result and a kernel position meet an element of the input, along one dimension."""
    starts = np.arange(results) * window.stride - window.before
    offsets = np.arange(window.size) * window.kernel_dilation
    last = (size - 1) * window.input_dilation
    total = 0
    for offset in offsets:
        at = starts + offset
        total += int(((at >= 0) & (at <= last) & (at % window.input_dilation == 0)).sum())
    return total
