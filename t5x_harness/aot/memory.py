"""What fills a device's memory while a compiled step runs: at most, of what kind, and in which modules of the model.

The peak is the compiler's: arguments, constants and results that have no argument's place are there all the time; of
temporary values those count that are live at the worst moment. What the compiler reserves is more, because temporary
values of different sizes leave gaps.

JAX's ``memory_analysis().peak_memory_in_bytes`` is the same figure on v3; on v5e, it counts memory on the
chip, too.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.aot.buffers import Allocation, BufferAssignment, PlacedValue, read_assignment
from t5x_harness.aot.module_names import argument, is_backward, module_of, primitive_of
from t5x_harness.aot.shapes import HBM, Shape, arrays_of, parse_value
from t5x_harness.plan.arrays import folded_path

if TYPE_CHECKING:
    from t5x_harness.aot.instructions import Instruction
    from t5x_harness.aot.program_text import HloProgram

_UNNAMED = ("copy", "bitcast", "get-tuple-element", "tuple", "opt-barrier", "convert")


class MemoryKind(enum.StrEnum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    INPUTS = "inputs"
    GRADIENTS = "gradients"
    TEMPORARIES = "activations and temporaries"
    CONSTANTS = "constants"
    OUTPUTS = "outputs"
    PADDING = "padding"


@dataclasses.dataclass(frozen=True)
class Buffer:
    """Equal arrays that are in memory at the peak.

    Attributes:
      kind: what they are for; never padding, which each buffer has of its own.
      module: the module of the model, ``*`` in place of a layer's number; empty if JAX gave no name.
      primitive: what computes them, such as ``dot_general``; empty for arguments.
      shape: sizes on one device.
      dtype: XLA's name of the element type.
      count: how many there are.
      bytes: of all of them, with padding.
      padding_bytes: of all of them: what tiles take that hold nothing.
    """

    kind: MemoryKind
    module: str
    primitive: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int
    padding_bytes: int


@dataclasses.dataclass(frozen=True)
class PaddedSize:
    """A size that tiles fill up, in all arrays that are in memory at the peak.

    Attributes:
      size: of a dimension on one device.
      in_tiles: what it takes.
      count: dimensions of arrays that have it.
      bytes: that hold nothing because of it. Where two dimensions of an array are filled up, each has its part.
    """

    size: int
    in_tiles: int
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The large memory of one device, in bytes.

    Attributes:
      peak_bytes: the most that is in use at a moment.
      reserved_bytes: what the compiler allocates; it has to fit the device. At another moment than the peak: as much
        more than is in use as it is at the peak.
      argument_bytes: parameters of the program, of all kinds.
      constant_bytes: constants.
      output_bytes: results that do not take an argument's place.
      temporary_bytes: temporary values at the peak.
      kinds: bytes at the peak by kind; they add up to ``peak_bytes``, padding apart.
      buffers: what is in memory at the peak, equal layers as one, the largest first.
      padding: by size, the most bytes first; the rest of ``MemoryKind.PADDING`` are single elements in whole tiles, and
        allocations rounded up.
      peak_at: the instruction at which it is reached, by JAX's name or its own.
      spaces: the most that temporary values take in each other memory of the chip, by its number.
    """

    peak_bytes: int
    reserved_bytes: int
    argument_bytes: int
    constant_bytes: int
    output_bytes: int
    temporary_bytes: int
    kinds: Mapping[MemoryKind, int]
    buffers: tuple[Buffer, ...]
    peak_at: str
    spaces: Mapping[int, int]
    padding: tuple[PaddedSize, ...] = ()

    @property
    def fragmentation_bytes(self) -> int:
        """What is reserved and never in use at once: gaps between temporary values."""
        return self.reserved_bytes - self.peak_bytes


def read_memory(program: HloProgram, assignment: Path, live_ranges: Path) -> DeviceMemory:
    """Reads what the compiler wrote about a program's memory.

    Args:
      program: the program, for names and shapes.
      assignment: the file ``*-buffer-assignment.txt``.
      live_ranges: the file ``*-live-range.txt``.

    Raises:
      MemoryTextError: a file is not what the compiler writes.
    """
    return memory_of(program, read_assignment(assignment, live_ranges))


def memory_of(program: HloProgram, assignment: BufferAssignment, at: int | None = None) -> DeviceMemory:
    """Adds up a program's memory.

    Args:
      program: for names and shapes.
      assignment: what the compiler wrote about its memory.
      at: number of an instruction; None for the one where most is live.
    """
    # Values within a reduction's or fusion's own body are in registers, though the compiler reserves room for them.
    every = [a for a in assignment.allocations if a.space == HBM]
    large = [a for a in every if a.kind != "thread-local"]
    live = assignment.live_bytes()
    moment = int(live.argmax()) if at is None else at
    lasting = [a for a in large if not a.is_temporary]
    arguments = sum(a.bytes for a in lasting if a.kind == "parameter")
    constants = sum(a.bytes for a in lasting if a.kind == "constant")
    outputs = sum(a.bytes for a in lasting) - arguments - constants
    peak = arguments + constants + outputs + int(live[moment])
    gaps = sum(a.bytes for a in every) - (arguments + constants + outputs + int(live.max()))
    present = list(_present(large, moment))
    namer = _Namer(program)
    found = [namer.buffer(allocation, value) for allocation, value in present]
    named = sum(buffer.bytes for buffer in found)
    kinds = dict.fromkeys(MemoryKind, 0)
    for buffer in found:
        kinds[buffer.kind] += buffer.bytes - buffer.padding_bytes
        kinds[MemoryKind.PADDING] += buffer.padding_bytes
    kinds[MemoryKind.PADDING] += peak - named  # allocations are rounded up
    return DeviceMemory(
        peak_bytes=peak,
        reserved_bytes=peak + gaps,
        argument_bytes=arguments,
        constant_bytes=constants,
        output_bytes=outputs,
        temporary_bytes=int(live[moment]),
        kinds=kinds,
        buffers=_folded(found),
        peak_at=_called_at(program, assignment, moment),
        spaces={
            space: int(assignment.live_bytes(space).max())
            for space in sorted({a.space for a in assignment.allocations if a.is_temporary} - {HBM})
        },
        padding=_padding(shape for _, value in present if (shape := _shape(value)) is not None),
    )


def _present(allocations: Iterable[Allocation], moment: int) -> Iterator[tuple[Allocation, PlacedValue]]:
    """Yields each array that is in memory at a moment."""
    for allocation in allocations:
        if allocation.is_temporary:
            for values in allocation.slots.values():
                live = [value for value in values if value.first <= moment <= value.last]
                if live:
                    yield allocation, max(live, key=lambda value: (value.bytes, value.first))
        elif allocation.values:
            yield allocation, allocation.values[0]


class _Namer:
    """Finds what the values in a program's memory are."""

    def __init__(self, program: HloProgram) -> None:
        self._program = program

    def buffer(self, allocation: Allocation, value: PlacedValue) -> Buffer:
        """Returns what a value in an allocation is."""
        return self._temporary(value) if allocation.is_temporary else self._lasting(allocation, value)

    def _lasting(self, allocation: Allocation, value: PlacedValue) -> Buffer:
        shape = _shape(value)
        if allocation.parameter is not None:
            known = argument(self._arguments.get(allocation.parameter, ""))
            return _buffer(MemoryKind(known.kind.value), known.path, "", shape, value.bytes)
        kind = MemoryKind.CONSTANTS if allocation.kind == "constant" else MemoryKind.OUTPUTS
        name = self._op_name(value)
        return _buffer(kind, module_of(name), primitive_of(name), shape, value.bytes)

    def _temporary(self, value: PlacedValue) -> Buffer:
        instruction, index = self._maker(value)
        name, shape = self._name(instruction, index), _shape(value)
        if shape and instruction is not None and self._is_accumulated(instruction, name, shape):
            added = next(filter(module_of, map(self._operands_name, instruction.operands)), "")
            return _buffer(MemoryKind.GRADIENTS, module_of(added), primitive_of(name), shape, value.bytes)
        module = module_of(name)
        kind = MemoryKind.GRADIENTS if shape and self._is_gradient(name, module, shape) else MemoryKind.TEMPORARIES
        return _buffer(kind, module, primitive_of(name), shape, value.bytes)

    def _is_gradient(self, name: str, module: str, shape: Shape) -> bool:
        """Checks whether the backward pass makes an array that is as large as a parameter of the same module.

        A parameter's copy in another order that the backward pass makes counts as a gradient, too.
        """
        sizes = _sizes(shape)
        return is_backward(name) and any(
            _sizes(own) == sizes and (not module or path.startswith(f"{module}/"))
            for path, own in self._parameters.items()
        )

    def _is_accumulated(self, instruction: Instruction, name: str, shape: Shape) -> bool:
        """Checks whether a loop over microbatches adds something to an array as large as a parameter, in each round.

        The addition is the trainer's, so it is in no module.
        """
        return (
            instruction.name in self._carried
            and primitive_of(name) == "add"
            and not module_of(name)
            and any(_sizes(own) == _sizes(shape) for own in self._parameters.values())
        )

    def _op_name(self, value: PlacedValue) -> str:
        """Returns JAX's name of what makes a value."""
        return self._name(*self._maker(value))

    def _maker(self, value: PlacedValue) -> tuple[Instruction | None, tuple[int, ...]]:
        """Returns what makes a value, and its place in what that yields: of a loop's element, what the body makes."""
        instruction = self._instructions.get(value.name)
        seen = 0
        index = value.index
        while instruction is not None and seen < 8:
            seen += 1
            inner = self._element(instruction, index)
            if inner is None:
                break
            instruction, index = inner
        return instruction, index

    def _name(self, instruction: Instruction | None, index: tuple[int, ...]) -> str:
        if instruction is None:
            return ""
        names = [*self._element_names(instruction, index), instruction.op_name, self._operand_name(instruction)]
        return next(filter(module_of, names), "") or next(filter(None, names), "")

    def _operands_name(self, operand: str) -> str:
        return self._name(self._instructions.get(operand), ())

    def _element_names(self, instruction: Instruction, index: tuple[int, ...]) -> Iterator[str]:
        """Yields names of one result of several: what the fusion makes it with, and what takes it."""
        if index:
            fused = self._program.computations.get(instruction.called.get("calls", ""))
            if fused is not None and fused.root.opcode == "tuple" and index[0] < len(fused.root.operands):
                yield fused.by_name[fused.root.operands[index[0]]].op_name
            if user := self._elements.get((instruction.name, index[0])):
                yield user.op_name

    def _element(self, instruction: Instruction, index: tuple[int, ...]) -> tuple[Instruction, tuple[int, ...]] | None:
        """Returns what a loop's body puts in an element of the loop's tuple."""
        body = self._bodies.get(instruction.name)
        if body is None or not index:
            return None
        root = self._program.computations[body].root
        if root.opcode != "tuple" or index[0] >= len(root.operands):
            return None
        made = self._instructions.get(root.operands[index[0]])
        return (made, index[1:]) if made is not None else None

    def _operand_name(self, instruction: Instruction) -> str:
        while instruction.opcode in _UNNAMED and instruction.operands and not instruction.op_name:
            following = self._instructions.get(instruction.operands[0])
            if following is None:
                break
            instruction = following
        return instruction.op_name

    @functools.cached_property
    def _instructions(self) -> Mapping[str, Instruction]:
        return {
            instruction.name: instruction
            for computation in self._program.computations.values()
            for instruction in computation.instructions
        }

    @functools.cached_property
    def _elements(self) -> Mapping[tuple[str, int], Instruction]:
        """The instructions that take an element of a tuple, by that: their names are more precise."""
        return {
            (instruction.operands[0], int(instruction.text("index") or 0)): instruction
            for instruction in self._instructions.values()
            if instruction.opcode == "get-tuple-element" and instruction.operands and instruction.op_name
        }

    @functools.cached_property
    def _bodies(self) -> Mapping[str, str]:
        """The body of each loop, by the loop's name and by the name of the body's parameter."""
        found = {}
        for instruction in self._instructions.values():
            if instruction.opcode == "while" and (body := instruction.called.get("body")):
                found[instruction.name] = body
                found |= {inner.name: body for inner in self._program.computations[body].parameters.values()}
        return found

    @functools.cached_property
    def _carried(self) -> frozenset[str]:
        """What bodies of the program's own loops put into the next round, by name."""
        loops = (i for i in self._program.main.instructions if i.opcode == "while" and "body" in i.called)
        return frozenset(
            name for loop in loops for name in self._program.computations[loop.called["body"]].root.operands
        )

    @functools.cached_property
    def _arguments(self) -> Mapping[int, str]:
        return {number: instruction.op_name for number, instruction in self._program.main.parameters.items()}

    @functools.cached_property
    def _parameters(self) -> Mapping[str, Shape]:
        """The model's parameters, by path."""
        found = {}
        for number, name in self._arguments.items():
            known = argument(name)
            if known.kind == MemoryKind.PARAMETERS.value:
                found[known.path] = self._program.main.parameters[number].arrays[0]
        return found


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape.dims if size > 1))


def _shape(value: PlacedValue) -> Shape | None:
    """Returns the array of a value; None for a tuple, which is a list of addresses."""
    parsed = parse_value(value.type) if not value.type.startswith("(") else ()
    return next(arrays_of(parsed), None)


def _buffer(kind: MemoryKind, module: str, primitive: str, shape: Shape | None, size: int) -> Buffer:
    filled = min(shape.bytes, size) if shape else 0
    dims, dtype = (shape.dims, shape.dtype) if shape else ((), "tuple")
    return Buffer(kind, folded_path(module), primitive, dims, dtype, 1, size, size - filled)


def _padding(shapes: Iterable[Shape]) -> tuple[PaddedSize, ...]:
    """Adds up what tiles take that hold nothing, by the sizes that they fill up."""
    lost: dict[tuple[int, int], list[float]] = {}
    for shape in shapes:
        padded = [(size, filled) for size, filled in zip(shape.dims, shape.in_tiles, strict=True) if filled > size > 0]
        growth = {pair: math.log(pair[1] / pair[0]) for pair in padded}
        for pair in padded:
            total = lost.setdefault(pair, [0, 0.0])
            total[0] += 1
            part = growth[pair] / sum(growth[each] for each in padded)
            total[1] += part * (shape.padded_bytes - shape.bytes)
    found = (PaddedSize(size, filled, int(count), round(size_)) for (size, filled), (count, size_) in lost.items())
    return tuple(sorted(found, key=lambda each: -each.bytes))


def _folded(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    groups: dict[tuple[object, ...], list[Buffer]] = {}
    for buffer in buffers:
        key = (buffer.kind, buffer.module, buffer.primitive, buffer.shape, buffer.dtype, buffer.bytes)
        groups.setdefault(key, []).append(buffer)
    folded = (
        dataclasses.replace(
            same[0],
            count=len(same),
            bytes=sum(buffer.bytes for buffer in same),
            padding_bytes=sum(buffer.padding_bytes for buffer in same),
        )
        for same in groups.values()
    )
    return tuple(sorted(folded, key=lambda buffer: -buffer.bytes))


def _called_at(program: HloProgram, assignment: BufferAssignment, moment: int) -> str:
    if moment >= len(assignment.sequence):
        return ""
    name = assignment.sequence[moment]
    found = (c.by_name[name] for c in program.computations.values() if name in c.by_name)
    instruction = next(found, None)
    return (instruction.op_name if instruction else "") or name
