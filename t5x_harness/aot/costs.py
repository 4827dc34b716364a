"""The work of one device in one run of a compiled program: operations, bytes of its memory, and collectives.

A loop counts as often as it runs, and a loop that may end early as often as it can run. If the text does not show how
often a loop runs, it counts as often as the caller says, and is named. The TPU compiler writes every product as a
convolution.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from t5x_harness.aot.hlo import HBM, Computation, Groups, Instruction, Shape, Tally, added_up, groups_of
from t5x_harness.aot.program_text import HloProgram

_PRODUCTS = frozenset(("dot", "convolution"))
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
_NO_ARITHMETIC = _PRODUCTS | frozenset(
    """parameter constant get-tuple-element tuple bitcast copy broadcast reshape transpose slice dynamic-slice
    dynamic-update-slice concatenate pad gather scatter iota reverse while conditional call fusion custom-call after-all
    partition-id replica-id optimization-barrier opt-barrier rng-bit-generator sort async-start async-update async-done
    copy-start copy-done infeed outfeed send recv send-done recv-done reduce-window domain bitcast-convert
    """.split()
)
_NO_TRAFFIC = frozenset(
    """parameter constant get-tuple-element tuple bitcast while conditional call after-all partition-id replica-id
    opt-barrier optimization-barrier async-update async-done copy-done domain
    """.split()
)
_READS_PART = frozenset(("slice", "dynamic-slice", "gather"))
_OTHER = "other"
_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_FIELD = re.compile(r"(\w+)=(\S+)")
_WINDOW = {"size": 1, "stride": 1, "pad": 0, "lhs_dilate": 1, "rhs_dilate": 1}
"""The fields that describe how a kernel moves along one dimension, and their default values."""


@dataclasses.dataclass(frozen=True)
class Collective(Tally):
    """All collectives of a kind along the same axes of the mesh, in one run of the program.

    Attributes:
      kind: the kind, such as ``all-reduce``.
      axis: the mesh axes whose devices exchange data, such as ``data`` or ``data+model``; ``other`` for groups of
        devices that no axes span.
      count: the number of times that such a collective runs.
      bytes: the size of the data that they exchange on each device: the operand, or the result if that is larger.
      sent_bytes: the least number of bytes that a device has to send for them.
    """

    kind: str
    axis: str
    count: int
    bytes: int
    sent_bytes: int


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


@dataclasses.dataclass(frozen=True)
class DeviceCosts:
    """The work of one device in one run of the program.

    Attributes:
      flops: the floating-point operations of products and everything else.
      product_flops: the operations of products alone, which run on the matrix units.
      hbm_bytes: the bytes read from and written to the device's large memory, with the padding of tiles.
      collectives: the collectives, the largest first.
      loops_of_most: the names of loops that may end earlier than the count assumes.
      loops_of_unknown_length: the names of loops for which the text does not show how often they run.
      products: the number of instructions with products; an instruction in a loop counts once.
      product_sizes: the products by their sizes, those with the most operations first.
    """

    flops: int
    product_flops: int
    hbm_bytes: int
    collectives: tuple[Collective, ...]
    loops_of_most: tuple[str, ...]
    loops_of_unknown_length: tuple[str, ...]
    products: int = 0
    product_sizes: tuple[ProductSize, ...] = ()


def costs_of(program: HloProgram, mesh: Mapping[str, int], longest_loop: int = 1) -> DeviceCosts:
    """Adds up the work of one device in one run of a program.

    Args:
      program: the compiled program.
      mesh: the devices by mesh axis, in the order of the mesh for which the program was compiled. The program numbers
        devices as they follow each other in it.
      longest_loop: the number of rounds of a loop if the text does not show it, such as one that decodes until every
        example has ended.
    """
    counter = _CostCounter(program, longest_loop)
    runs = list(counter.runs(program.main, 1))
    sizes = [(size, times) for computation, times in runs for each in counter.products(computation) for size in each]
    product_flops = sum(size.flops * times for size, times in sizes)
    return DeviceCosts(
        flops=product_flops + sum(times * counter.other_flops(computation) for computation, times in runs),
        product_flops=product_flops,
        hbm_bytes=sum(times * counter.traffic(computation) for computation, times in runs),
        collectives=added_up(counter.collectives(runs, mesh)),
        loops_of_most=tuple(counter.most),
        loops_of_unknown_length=tuple(counter.unknown),
        products=sum(len(counter.products(computation)) for computation in {c.name: c for c, _ in runs}.values()),
        product_sizes=added_up(sizes),
    )


def axes_of(groups: Groups | None, mesh: Mapping[str, int]) -> str:
    """Names the mesh axes that groups of devices span, such as ``data+model``; ``other`` if no axes span them.

    Args:
      groups: the positions in the mesh, row by row.
      mesh: the devices by mesh axis, in order.
    """
    if groups is None:
        return _OTHER
    sizes = tuple(mesh.values())
    devices = math.prod(sizes)
    rows = np.array(groups.pairs or groups.members or [range(devices)])
    if rows.max(initial=0) >= devices:
        return _OTHER
    places = np.stack(np.unravel_index(rows, sizes), axis=-1)
    varies = (places != places[:, :1]).any(axis=(0, 1))
    names = [name for name, differs in zip(mesh, varies, strict=True) if differs]
    whole = groups.pairs or rows.shape[1] == math.prod(mesh[name] for name in names)
    return "+".join(names) if names and whole else _OTHER


class _CostCounter:
    """Counts the work of a program, analyzing each computation once."""

    def __init__(self, program: HloProgram, longest_loop: int) -> None:
        self._program = program
        self._longest_loop = longest_loop
        self.most: dict[str, None] = {}
        self.unknown: dict[str, None] = {}

    def runs(self, computation: Computation, times: int) -> Iterator[tuple[Computation, int]]:
        """Yields the computations whose instructions the device runs one by one, and how often it runs them."""
        yield computation, times
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                often = self._times(instruction)
                for part, each in (("body", often), ("condition", often + 1)):
                    yield from self.runs(self._program.computations[instruction.called[part]], times * each)
            elif instruction.opcode == "call":
                yield from self.runs(self._program.computations[instruction.called["to_apply"]], times)
            elif instruction.opcode == "conditional":
                branches = [self._program.computations[name] for name in instruction.branches]
                yield from self.runs(max(branches, key=self._flops), times)

    def _times(self, loop: Instruction) -> int:
        trips = self._program.trips.get(loop.name)
        if trips is None:
            self.unknown[loop.name] = None
            return self._longest_loop
        if trips.is_most:
            self.most[loop.name] = None
        return trips.times

    @functools.cache  # noqa: B019, as a counter lives for one count
    def products(self, computation: Computation) -> tuple[tuple[ProductSize, ...], ...]:
        """Returns the products of each instruction of a computation that has any, including those in its fusion."""
        found = (tuple(self._products_of(computation, instruction)) for instruction in computation.instructions)
        return tuple(filter(None, found))

    def _products_of(self, computation: Computation, instruction: Instruction) -> Iterator[ProductSize]:
        if (inside := self._inside(instruction)) is not None:
            yield from (size for each in self.products(inside) for size in each)
        elif instruction.opcode in _PRODUCTS:
            left, right = (computation.by_name[name].arrays[0] for name in instruction.operands[:2])
            if (size := _product_size(instruction, left, right)) is not None:
                yield size

    @functools.cache  # noqa: B019
    def other_flops(self, computation: Computation) -> int:
        """Returns the operations of a computation and its fusions, without products."""
        total = 0
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if (inside := self._inside(instruction)) is not None:
                total += self.other_flops(inside)
            elif opcode == "reduce":
                inputs = instruction.operands[: len(instruction.operands) // 2]
                total += sum(computation.by_name[name].arrays[0].elements for name in inputs)
            elif opcode not in _NO_ARITHMETIC and not opcode.startswith(_COLLECTIVES):
                total += instruction.arrays[0].elements
        return total

    def _flops(self, computation: Computation) -> int:
        products = sum(size.flops for each in self.products(computation) for size in each)
        return products + self.other_flops(computation)

    def _inside(self, instruction: Instruction) -> Computation | None:
        """Returns the computation of a fusion, or of an operation that runs asynchronously."""
        if instruction.opcode not in ("fusion", "async-start"):
            return None
        return self._program.computations.get(instruction.called.get("calls", ""))

    @functools.cache  # noqa: B019
    def traffic(self, computation: Computation) -> int:
        """Returns the bytes that a computation's own instructions read from and write to the large memory."""
        return sum(
            self._instruction_traffic(computation, instruction)
            for instruction in computation.instructions
            if instruction.opcode not in _NO_TRAFFIC and not instruction.opcode.endswith("-done")
        )

    def _instruction_traffic(self, computation: Computation, instruction: Instruction) -> int:
        if 'custom_call_target="AllocateBuffer"' in instruction.attributes:
            return 0
        called = self._program.computations.get(instruction.called.get("calls", ""))
        operands = [computation.by_name[name] for name in instruction.operands]
        if called is not None:
            read = sum(_read_of(called, number) for number in range(len(operands)))
            return read + _written_by(called)
        if instruction.opcode in _READS_PART:
            return 2 * _in_hbm(instruction.arrays)
        if instruction.opcode == "dynamic-update-slice":
            return 2 * _in_hbm(operands[1].arrays)
        if instruction.opcode.endswith("-start"):  # its result also contains its operands
            return _in_hbm(operands[0].arrays) + _in_hbm(instruction.arrays[len(operands) : 2 * len(operands)])
        return sum(_in_hbm(operand.arrays) for operand in operands) + _in_hbm(instruction.arrays)

    def collectives(
        self, runs: Iterable[tuple[Computation, int]], mesh: Mapping[str, int]
    ) -> Iterator[tuple[Collective, int]]:
        """Yields each collective of several devices, and how often it runs; one spread over fusions counts once."""
        for computation, times in runs:
            seen: set[tuple[str, str | None]] = set()
            for kind, instruction, where in self._collectives_in(computation):
                channel = instruction.text("channel_id")
                is_new = channel is None or where is computation or (kind, channel) not in seen
                seen.add((kind, channel))
                groups = groups_of(instruction.attributes)
                members = len(groups.members[0]) if groups and groups.members else math.prod(mesh.values())
                if is_new and (members > 1 or (groups and groups.pairs)):
                    size = _size(kind, instruction, where)
                    yield Collective(kind, axes_of(groups, mesh), 1, size, _sent(kind, size, members)), times

    def _collectives_in(self, computation: Computation) -> Iterator[tuple[str, Instruction, Computation]]:
        for instruction in computation.instructions:
            kind = instruction.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                yield kind, instruction, computation
            elif (inside := self._inside(instruction)) is not None:
                is_scattered = inside.name.startswith("all-reduce-scatter")
                for found, inner, where in self._collectives_in(inside):
                    yield "reduce-scatter" if found == "all-reduce" and is_scattered else found, inner, where


def _read_of(called: Computation, number: int) -> int:
    """Returns the bytes that a fusion reads from one of its operands: only a part if it does nothing but slice it."""
    parameter = called.parameters.get(number)
    if parameter is None:
        return 0
    whole, parts = _in_hbm(parameter.arrays), 0
    for user in called.users.get(parameter.name, ()):
        is_first = user.operands[0] == parameter.name
        if is_first and user.opcode in _READS_PART:
            parts += sum(shape.padded_bytes for shape in user.arrays)
        # The rest of an updated array stays in place, and a tuple passes it on unchanged.
        elif not (is_first and user.opcode == "dynamic-update-slice") and not (user.is_root and user.opcode == "tuple"):
            return whole
    return min(parts, whole)


def _written_by(called: Computation) -> int:
    """Returns the bytes that a fusion writes: only the new part if it updates an array in place."""
    root = called.root
    outputs = [called.by_name[name] for name in root.operands] if root.opcode == "tuple" else [root]
    total = 0
    for named in outputs:
        output = named
        while output.opcode == "bitcast":
            output = called.by_name[output.operands[0]]
        if output.opcode == "parameter":
            continue
        if output.opcode == "dynamic-update-slice":
            total += called.by_name[output.operands[1]].arrays[0].padded_bytes * (output.arrays[0].space == HBM)
        else:
            total += _in_hbm(output.arrays)
    return total


def _in_hbm(shapes: Iterable[Shape]) -> int:
    return sum(shape.padded_bytes for shape in shapes if shape.space == HBM)


def _size(kind: str, instruction: Instruction, where: Computation) -> int:
    """Returns the bytes of a collective's operands, or of its result if it gathers."""
    moved = [shape for name in instruction.operands for shape in where.by_name[name].arrays]
    if kind == "all-gather":
        is_started = instruction.opcode.endswith("-start")  # its value also contains the operands
        moved = list(instruction.arrays[len(moved) : 2 * len(moved)] if is_started else instruction.arrays)
    return sum(shape.bytes for shape in moved)


def _sent(kind: str, size: int, members: int) -> int:
    """Returns the least number of bytes that one device sends; an all-reduce is a reduce-scatter and an all-gather."""
    if kind == "collective-permute":
        return size
    return size * (members - 1) // members * (2 if kind == "all-reduce" else 1)


def _product_size(instruction: Instruction, left: Shape, right: Shape) -> ProductSize | None:
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
