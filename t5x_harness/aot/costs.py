"""What one device does in one run of a compiled program: operations, bytes of its memory, and collectives.

Loops count as often as they run; one that may end early, as often as it can. One whose count the text does not show
counts as often as the caller says, and is named.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_harness.aot.convolutions import ProductSize, product_flops, product_size
from t5x_harness.aot.shapes import HBM, Shape, arrays_of

if TYPE_CHECKING:
    from t5x_harness.aot.groups import Groups
    from t5x_harness.aot.instructions import Computation, Instruction
    from t5x_harness.aot.program_text import HloProgram

_PRODUCTS = frozenset(("dot", "convolution"))
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
_NO_ARITHMETIC = frozenset(
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


@dataclasses.dataclass(frozen=True)
class Collective:
    """All collectives of a kind along the same axes of the mesh, in one run of the program.

    Attributes:
      kind: such as ``all-reduce``.
      axis: the mesh axes whose devices exchange, such as ``data`` or ``data+model``; ``other`` for groups that are
        not those of axes.
      count: how often one runs.
      bytes: what they work on, on each device: the operand, or the result where that is larger.
      sent_bytes: the least that a device has to send for them.
    """

    kind: str
    axis: str
    count: int
    bytes: int
    sent_bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceCosts:
    """What one device does in one run of the program.

    Attributes:
      flops: floating-point operations, products and others.
      product_flops: those of products alone, which the matrix units do.
      hbm_bytes: bytes read from and written to the device's large memory, tiles' padding included.
      collectives: the largest first.
      loops_of_most: names of loops that may end earlier than they are counted.
      loops_of_unknown_length: names of loops of which the text does not show how often they run.
      products: instructions with products; one in a loop counts once.
      product_sizes: what is multiplied, by its sizes, the most operations first.
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
    """Adds up what one device does in one run of a program.

    Args:
      program: what is run.
      mesh: devices by mesh axis, in the order of the mesh that the program was compiled for. The program numbers
        devices as they follow each other in it.
      longest_loop: how often a loop runs whose text does not show it, such as one that decodes until every example
        has ended.
    """
    counter = _CostCounter(program, longest_loop)
    runs = list(counter.runs(program.main, 1))
    return DeviceCosts(
        flops=sum(times * counter.flops(computation)[0] for computation, times in runs),
        product_flops=sum(times * counter.flops(computation)[1] for computation, times in runs),
        hbm_bytes=sum(times * counter.traffic(computation) for computation, times in runs),
        collectives=_added_up(counter.collectives(runs), mesh),
        loops_of_most=tuple(counter.most),
        loops_of_unknown_length=tuple(counter.unknown),
        products=sum(counter.products(computation) for computation in {c.name: c for c, _ in runs}.values()),
        product_sizes=_sizes((size, times) for computation, times in runs for size in counter.sizes(computation)),
    )


def axes_of(groups: Groups | None, mesh: Mapping[str, int]) -> str:
    """Names the mesh axes along which groups of devices exchange, such as ``data+model``; ``other`` if there are none.

    Args:
      groups: positions in the mesh, row by row.
      mesh: devices by mesh axis, in order.
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
    """Counts a program; each computation once."""

    def __init__(self, program: HloProgram, longest_loop: int) -> None:
        self._program = program
        self._longest_loop = longest_loop
        self.most: dict[str, None] = {}
        self.unknown: dict[str, None] = {}

    def runs(self, computation: Computation, times: int) -> Iterator[tuple[Computation, int]]:
        """Yields the computations whose instructions the device runs one by one, with how often."""
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
                yield from self.runs(max(branches, key=lambda branch: self.flops(branch)[0]), times)

    def _times(self, loop: Instruction) -> int:
        trips = self._program.trips(loop)
        if trips is None:
            self.unknown[loop.name] = None
            return self._longest_loop
        if trips.is_most:
            self.most[loop.name] = None
        return trips.times

    @functools.cache  # noqa: B019, as a counter lives for one count
    def flops(self, computation: Computation) -> tuple[int, int]:
        """Returns all operations of a computation's own instructions and of its fusions, and those of products."""
        every = products = 0
        for instruction in computation.instructions:
            both = self._flops_of(computation, instruction)
            every, products = every + both[0], products + both[1]
        return every, products

    def products(self, computation: Computation) -> int:
        """Returns how many of a computation's own instructions have products, in fusions too."""
        return sum(self._flops_of(computation, instruction)[1] > 0 for instruction in computation.instructions)

    def sizes(self, computation: Computation) -> Iterator[ProductSize]:
        """Yields the sizes of each product of a computation, in fusions too."""
        for instruction in computation.instructions:
            if instruction.opcode in ("fusion", "async-start"):
                inside = self._program.computations.get(instruction.called.get("calls", ""))
                yield from self.sizes(inside) if inside else ()
            elif instruction.opcode in _PRODUCTS:
                left, right = (computation.by_name[name].arrays[0] for name in instruction.operands[:2])
                if (size := product_size(instruction, left, right)) is not None:
                    yield size

    def _flops_of(self, computation: Computation, instruction: Instruction) -> tuple[int, int]:
        if instruction.opcode in ("fusion", "async-start"):
            inside = self._program.computations.get(instruction.called.get("calls", ""))
            return self.flops(inside) if inside else (0, 0)
        return self._own_flops(computation, instruction)

    def _own_flops(self, computation: Computation, instruction: Instruction) -> tuple[int, int]:
        opcode = instruction.opcode
        if opcode in _PRODUCTS:
            left, right = (computation.by_name[name].arrays[0] for name in instruction.operands[:2])
            count = product_flops(instruction, left, right)
            return count, count
        if opcode in _NO_ARITHMETIC or opcode.startswith(_COLLECTIVES):
            return 0, 0
        if opcode == "reduce":
            inputs = instruction.operands[: len(instruction.operands) // 2]
            return sum(computation.by_name[name].arrays[0].elements for name in inputs), 0
        return instruction.arrays[0].elements, 0

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
            read = sum(_read_of(called, number, operand.value) for number, operand in enumerate(operands))
            return read + _written_by(called)
        if instruction.opcode in _READS_PART:
            return 2 * _in_hbm(instruction.arrays)
        if instruction.opcode == "dynamic-update-slice":
            return 2 * _in_hbm(operands[1].arrays)
        if instruction.opcode.endswith("-start"):  # what it yields has its operands in it, too
            return _in_hbm(arrays_of(operands[0].value)) + _in_hbm(
                instruction.arrays[len(operands) : 2 * len(operands)]
            )
        return sum(_in_hbm(operand.arrays) for operand in operands) + _in_hbm(instruction.arrays)

    def collectives(
        self, runs: Iterable[tuple[Computation, int]]
    ) -> Iterator[tuple[str, Instruction, Computation, int]]:
        """Yields kind, instruction, where it is, and how often it runs; one that is spread over fusions once."""
        for computation, times in runs:
            seen: set[tuple[str, int]] = set()
            for kind, instruction, where in self._collectives_in(computation):
                channel = instruction.channel
                if channel is None or where is computation or (kind, channel) not in seen:
                    yield kind, instruction, where, times
                if channel is not None:
                    seen.add((kind, channel))

    def _collectives_in(self, computation: Computation) -> Iterator[tuple[str, Instruction, Computation]]:
        for instruction in computation.instructions:
            kind = instruction.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                yield kind, instruction, computation
            elif instruction.opcode in ("fusion", "async-start"):
                inside = self._program.computations.get(instruction.called.get("calls", ""))
                for found, inner, where in self._collectives_in(inside) if inside else ():
                    scattered = (
                        found == "all-reduce" and inside is not None and inside.name.startswith("all-reduce-scatter")
                    )
                    yield "reduce-scatter" if scattered else found, inner, where


def _read_of(called: Computation, number: int, value: object) -> int:
    """Returns the bytes that a fusion reads of one of its operands: a part only, if all that it does is to slice it."""
    parameter = called.parameters.get(number)
    if parameter is None:
        return 0
    whole = _in_hbm(parameter.arrays)
    users = called.users.get(parameter.name, ())
    if not whole or not users:
        return 0
    parts = 0
    for user in users:
        if user.opcode in _READS_PART and user.operands[0] == parameter.name:
            parts += sum(shape.padded_bytes for shape in user.arrays)
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == parameter.name:
            continue  # the rest of it stays where it is
        elif user.is_root and user.opcode == "tuple":
            continue  # handed on as it is
        else:
            return whole
    return min(parts, whole)


def _written_by(called: Computation) -> int:
    """Returns the bytes that a fusion writes: the new part only, where it updates an array in place."""
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


def _added_up(
    collectives: Iterable[tuple[str, Instruction, Computation, int]], mesh: Mapping[str, int]
) -> tuple[Collective, ...]:
    totals: dict[tuple[str, str], list[int]] = {}
    devices = math.prod(mesh.values())
    for kind, instruction, where, times in collectives:
        groups = instruction.groups
        members = len(groups.members[0]) if groups and groups.members else devices
        if members < 2 and not (groups and groups.pairs):
            continue
        size = _size(kind, instruction, where)
        total = totals.setdefault((kind, axes_of(groups, mesh)), [0, 0, 0])
        for index, amount in enumerate((1, size, _sent(kind, size, members))):
            total[index] += amount * times
    found = (Collective(kind, axis, *numbers) for (kind, axis), numbers in totals.items())
    return tuple(sorted(found, key=lambda collective: -collective.sent_bytes))


def _sizes(found: Iterable[tuple[ProductSize, int]]) -> tuple[ProductSize, ...]:
    totals: dict[tuple[int, tuple[int, int]], list[int]] = {}
    for size, times in found:
        total = totals.setdefault((size.contracted, size.sides), [0, 0])
        total[0] += times
        total[1] += size.flops * times
    sizes = (ProductSize(*key, *numbers) for key, numbers in totals.items())
    return tuple(sorted(sizes, key=lambda size: -size.flops))


def _size(kind: str, instruction: Instruction, where: Computation) -> int:
    """Returns the bytes that a collective works on: of its operands, or for a gathering one of its result."""
    operands = sum(shape.bytes for name in instruction.operands for shape in where.by_name[name].arrays)
    if kind != "all-gather":
        return operands
    results = instruction.value
    if instruction.opcode.endswith("-start") and isinstance(results, tuple):
        return sum(shape.bytes for shape in arrays_of(results[1]))
    return sum(shape.bytes for shape in instruction.arrays)


def _sent(kind: str, size: int, members: int) -> int:
    """Returns the least that one device sends: an all-reduce is a reduce-scatter and an all-gather."""
    if kind == "collective-permute":
        return size
    return size * (members - 1) // members * (2 if kind == "all-reduce" else 1)
