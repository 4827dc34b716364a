"""Floating-point operations of products: the TPU compiler writes every one as a convolution."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

import numpy as np

from t5x_harness.aot.hlo import Instruction, Shape, Tally

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_FIELD = re.compile(r"(\w+)=(\S+)")
_WINDOW = {"size": 1, "stride": 1, "pad": 0, "lhs_dilate": 1, "rhs_dilate": 1}
"""The fields that describe how a kernel moves along one dimension, and their default values."""


@dataclasses.dataclass(frozen=True)
class ProductSize(Tally):
    """Products of the same sizes, in one run of a program on one device.

    Attributes:
      contracted: the number of products that add up to each element of the result.
      sides: the sizes of both sides of the result.
      count: the number of times that such a product runs.
      flops: the operations of all of them.
    """

    contracted: int
    sides: tuple[int, int]
    count: int
    flops: int

    def filled(self, unit: int) -> float:
        """Returns the largest part of a matrix unit that such a product can fill.

        The unit holds ``unit`` by ``unit`` numbers of one operand, with the contracted dimension on one side. The
        compiler chooses which operand, so the better side counts. Zeros fill the rest.
        """
        return _filled(self.contracted, unit) * max(_filled(side, unit) for side in self.sides)


def product_size(instruction: Instruction, left: Shape, right: Shape) -> ProductSize | None:
    """Returns the sizes of one ``dot`` or ``convolution``; None for one without operations.

    Each pair of elements takes two operations: a multiplication and an addition. Pairs with padding, or with holes
    between a dilated input's elements, do not count. All positions of a kernel that meet one element of the result
    count as contracted together, as the compiler may join them.

    Args:
      instruction: the product.
      left: the shape of its first operand.
      right: the shape of its second operand.
    """
    (result,) = instruction.arrays
    labels = _LABELS.match(instruction.text("dim_labels") or "")
    if instruction.opcode == "dot":
        numbers = re.findall(r"\d+", instruction.text("lhs_contracting_dims") or "")
        pairs = result.elements * math.prod(left.dims[int(number)] for number in numbers)
    else:
        pairs = _pairs(instruction, labels, left, result) if labels is not None else 0
    contracted = pairs // result.elements
    if not contracted:
        return None
    if labels is None:
        return ProductSize(contracted, (left.elements // contracted, right.elements // contracted), 1, 2 * pairs)
    features = result.dims[labels[3].index("f")]
    return ProductSize(contracted, (result.elements // features, features), 1, 2 * pairs)


def _pairs(instruction: Instruction, labels: re.Match[str], left: Shape, result: Shape) -> int:
    """Counts the pairs of elements that a convolution multiplies."""
    sizes = {letter: left.dims[at] for at, letter in enumerate(labels[1])}
    outputs = {letter: result.dims[at] for at, letter in enumerate(labels[3])}
    pairs = sizes["b"] * sizes["f"] * outputs["f"]
    for key in ("feature_group_count", "batch_group_count"):
        pairs //= int(instruction.text(key) or 1)
    # In ``{size=16x1 stride=15x1 pad=0_0x0_0}``, each field has a value for each dimension.
    fields = {key: value.split("x") for key, value in _FIELD.findall((instruction.text("window") or "").strip("{}"))}
    for number in range(len(labels[1]) - 2):
        window = tuple(
            int(fields[key][number].partition("_")[0]) if key in fields else default for key, default in _WINDOW.items()
        )
        pairs *= _positions(sizes[str(number)], outputs[str(number)], window)
    return pairs


@functools.cache
def _positions(size: int, results: int, window: tuple[int, ...]) -> int:
    """Counts the pairs of a result and a kernel position that meet an element of the input, along one dimension."""
    length, stride, before, input_dilation, kernel_dilation = window
    starts, last = np.arange(results) * stride - before, (size - 1) * input_dilation
    total = 0
    for at in (starts + offset for offset in np.arange(length) * kernel_dilation):
        total += int(((at >= 0) & (at <= last) & (at % input_dilation == 0)).sum())
    return total


def _filled(size: int, unit: int) -> float:
    return size / (-(-size // unit) * unit)
