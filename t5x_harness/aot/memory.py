"""The contents of a device's memory at the peak of a compiled step: how many bytes, of which kind, of which modules.

The peak is the compiler's own. Arguments, constants and results that take no argument's place are in memory all the
time; temporary values count if they are live at the moment at which most of them are. The compiler reserves more,
because temporary values of different sizes leave gaps. Uses and modules are read from JAX's names of instructions.

JAX's ``memory_analysis().peak_memory_in_bytes`` is the same figure on v2 to v4, but without kinds and modules. On
v5e it also counts memory on the chip. JAX returns it only after code is generated, which is most of a compilation.
"""

import dataclasses
import enum
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping

from t5x_harness.aot.buffers import Allocation, BufferAssignment, PlacedValue
from t5x_harness.aot.hlo import HBM, Instruction, Shape, Tally, added_up, parse_arrays
from t5x_harness.aot.program_text import HloProgram
from t5x_harness.plan.arrays import folded_path

_ARGUMENT = re.compile(r"^[A-Za-z_]\w*(?:\.\w+|\[[^\]]*\])+$")
_STEP = re.compile(r"\.(\w+)|\[['\"]?([^'\"\]]*)['\"]?\]")
_TRANSFORMED = re.compile(r"[(<>]")
_CLASS_AND_METHOD = re.compile(r"[A-Z]\w*\.\w+")
_CONTROL = re.compile(
    r"while|body|cond|branch_\d+_fun|closed_call|core_call|checkpoint|remat2?|rematted_computation|pjit|scan|"
    r"custom_[jv]vp_call(_jaxpr)?"
)
_STATE = ("_optimizer", "optimizer", "state", "param_states")
_BACKWARD = "transpose(jvp("
_NESTED_LOOPS = 8
_UNNAMED = ("copy", "bitcast", "get-tuple-element", "tuple", "opt-barrier", "convert")


class MemoryKind(enum.StrEnum):
    """The uses of memory."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    INPUTS = "inputs"
    """Batches, random keys, the learning rate: every argument that is neither a parameter nor optimizer state."""
    GRADIENTS = "gradients"
    TEMPORARIES = "activations and temporaries"
    CONSTANTS = "constants"
    OUTPUTS = "outputs"
    PADDING = "padding"


def argument(name: str) -> tuple[MemoryKind, str]:
    """Reads an argument's use and path from its name, ``train_state._optimizer.target['decoder']['wo']['kernel']``.

    T5X's train states have parameters in ``_optimizer.target`` and the rest in ``_optimizer.state``; its steps for
    evaluation and prediction take parameters as ``params``.
    """
    steps = [name.partition(".")[0].partition("[")[0], *(plain or key for plain, key in _STEP.findall(name))]
    if "target" in steps and steps[max(0, steps.index("target") - 1)] in ("_optimizer", "optimizer"):
        return MemoryKind.PARAMETERS, "/".join(steps[steps.index("target") + 1 :])
    if "_optimizer" in steps or "optimizer" in steps:
        return MemoryKind.OPTIMIZER, "/".join(step for step in steps[1:] if step not in _STATE)
    for start in ("params", "_params"):
        if start in steps[:2]:
            return MemoryKind.PARAMETERS, "/".join(steps[steps.index(start) + 1 :])
    return MemoryKind.INPUTS, "/".join(steps)


def module_of(op_name: str) -> str:
    """Returns the module that an instruction comes from, such as ``decoder/layers_1/mlp/wi_0``; empty if it has none.

    Args:
      op_name: JAX's name for it: transformed functions, then Flax's modules, then the primitive.
    """
    if _ARGUMENT.match(op_name):
        return argument(op_name)[1]
    steps = op_name.split("/")[:-1]
    parts = [
        part
        for part, following in zip(steps, [*steps[1:], ""], strict=False)
        if not following.startswith(f"{part}.")  # the model's own name, before its class and method
        if not _CONTROL.fullmatch(part) and not _TRANSFORMED.search(part) and not _CLASS_AND_METHOD.fullmatch(part)
    ]
    return "/".join(parts)


def primitive_of(op_name: str) -> str:
    """Returns the primitive that an instruction computes, such as ``dot_general``; empty for an argument."""
    return "" if _ARGUMENT.match(op_name) else op_name.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Buffer(Tally):
    """Equal arrays that are in memory at the peak.

    Attributes:
      kind: the use of the arrays; never padding, because each buffer has its own padding.
      module: the module of the model, ``*`` in place of a layer's number; empty if JAX gave no name.
      primitive: the operation that computes them, such as ``dot_general``; empty for arguments.
      shape: the sizes on one device.
      dtype: XLA's name of the element type.
      count: the number of arrays.
      bytes: the bytes of all of them, with padding.
      padding_bytes: the bytes in their tiles that hold nothing, for all of them.
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
class PaddedSize(Tally):
    """A size that is padded to whole tiles, in all arrays that are in memory at the peak.

    Attributes:
      size: the size of a dimension on one device.
      in_tiles: the size with padding.
      count: the number of array dimensions with this size.
      bytes: the bytes that hold nothing because of it. If two dimensions of an array are padded, each has its share.
    """

    size: int
    in_tiles: int
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The large memory of one device, in bytes.

    Attributes:
      peak_bytes: the most bytes that are in use at a moment.
      reserved_bytes: the bytes that the compiler allocates, all of which have to fit the device. At a moment other than
        the peak: the bytes in use, plus the gaps at the peak.
      kinds: the bytes at the peak by kind, without padding, which is a separate kind; they add up to ``peak_bytes``.
      buffers: the arrays in memory at the peak, with equal layers as one, the largest first.
      padding: the padding by size, the most bytes first; the rest of ``MemoryKind.PADDING`` are single elements in
        whole tiles, and allocations rounded up.
    """

    peak_bytes: int
    reserved_bytes: int
    kinds: Mapping[MemoryKind, int]
    buffers: tuple[Buffer, ...]
    padding: tuple[PaddedSize, ...] = ()

    @property
    def fragmentation_bytes(self) -> int:
        """The bytes that are reserved but never in use: gaps between temporary values."""
        return self.reserved_bytes - self.peak_bytes


def memory_of(program: HloProgram, assignment: BufferAssignment, at: int | None = None) -> DeviceMemory:
    """Adds up a program's memory.

    Args:
      program: the program, for names and shapes.
      assignment: the compiler's account of its memory.
      at: the number of an instruction; None for the one with the most live bytes.
    """
    # Values within a reduction's or fusion's own body are in registers, though the compiler reserves room for them.
    every = [a for a in assignment.allocations if a.space == HBM]
    large = [a for a in every if a.kind != "thread-local"]
    lasting = sum(a.bytes for a in large if not a.is_temporary)
    live = assignment.live_bytes()
    moment = int(live.argmax()) if at is None else at
    peak = lasting + int(live[moment])
    gaps = sum(a.bytes for a in every) - (lasting + int(live.max()))
    present = list(_present(large, moment))
    namer = _Namer(program)
    found = [namer.buffer(allocation, value) for allocation, value in present]
    kinds = dict.fromkeys(MemoryKind, 0)
    for buffer in found:
        kinds[buffer.kind] += buffer.bytes - buffer.padding_bytes
        kinds[MemoryKind.PADDING] += buffer.padding_bytes
    kinds[MemoryKind.PADDING] += peak - sum(buffer.bytes for buffer in found)  # allocations are rounded up
    padded = (size for _, value in present if (shape := _shape(value)) is not None for size in _padded(shape))
    return DeviceMemory(
        peak_bytes=peak,
        reserved_bytes=peak + gaps,
        kinds=kinds,
        buffers=added_up((buffer, 1) for buffer in found),
        padding=added_up((size, 1) for size in padded),
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
    """Identifies the values in a program's memory."""

    def __init__(self, program: HloProgram) -> None:
        self._program = program

    def buffer(self, allocation: Allocation, value: PlacedValue) -> Buffer:
        """Describes a value in an allocation."""
        shape, primitive = _shape(value), ""
        if allocation.parameter is not None:
            kind, module = argument(self._arguments.get(allocation.parameter, ""))
        else:
            instruction, index = self._maker(value)
            name = self._name(instruction, index)
            module, primitive = module_of(name), primitive_of(name)
            if not allocation.is_temporary:
                kind = MemoryKind.CONSTANTS if allocation.kind == "constant" else MemoryKind.OUTPUTS
            elif shape and instruction is not None and self._is_accumulated(instruction, name, shape):
                operands = (self._name(self._program.instructions.get(operand), ()) for operand in instruction.operands)
                kind, module = MemoryKind.GRADIENTS, module_of(next(filter(module_of, operands), ""))
            else:
                is_gradient = shape is not None and self._is_gradient(name, module, shape)
                kind = MemoryKind.GRADIENTS if is_gradient else MemoryKind.TEMPORARIES
        dims, dtype, filled = (shape.dims, shape.dtype, min(shape.bytes, value.bytes)) if shape else ((), "tuple", 0)
        return Buffer(kind, folded_path(module), primitive, dims, dtype, 1, value.bytes, value.bytes - filled)

    def _is_gradient(self, name: str, module: str, shape: Shape) -> bool:
        """Checks whether the backward pass makes an array that is as large as a parameter of the same module.

        A transposed copy of a parameter that the backward pass makes also counts as a gradient.
        """
        sizes = _sizes(shape)
        return _BACKWARD in name and any(
            _sizes(own) == sizes and (not module or path.startswith(f"{module}/"))
            for path, own in self._parameters.items()
        )

    def _is_accumulated(self, instruction: Instruction, name: str, shape: Shape) -> bool:
        """Checks whether a loop over microbatches adds to an array as large as a parameter in each round.

        The addition is the trainer's own, so it is in no module.
        """
        return (
            instruction.name in self._carried
            and primitive_of(name) == "add"
            and not module_of(name)
            and any(_sizes(own) == _sizes(shape) for own in self._parameters.values())
        )

    def _maker(self, value: PlacedValue) -> tuple[Instruction | None, tuple[int, ...]]:
        """Finds the instruction that makes a value, and the value's place in its result; follows loops into bodies."""
        instruction, index = self._program.instructions.get(value.name), value.index
        for _ in range(_NESTED_LOOPS):
            inner = self._element(instruction, index) if instruction is not None else None
            if inner is None:
                break
            instruction, index = inner
        return instruction, index

    def _name(self, instruction: Instruction | None, index: tuple[int, ...]) -> str:
        if instruction is None:
            return ""
        names = [*self._element_names(instruction, index), instruction.op_name, self._operand_name(instruction)]
        return next(filter(module_of, names), "") or next(filter(None, names), "")

    def _element_names(self, instruction: Instruction, index: tuple[int, ...]) -> Iterator[str]:
        """Yields the names of the instruction that makes one of a fusion's results, and of the one that takes it."""
        if index:
            fused = self._program.computations.get(instruction.called.get("calls", ""))
            if fused is not None and fused.root.opcode == "tuple" and index[0] < len(fused.root.operands):
                yield fused.by_name[fused.root.operands[index[0]]].op_name
            if user := self._elements.get((instruction.name, index[0])):
                yield user.op_name

    def _element(self, instruction: Instruction, index: tuple[int, ...]) -> tuple[Instruction, tuple[int, ...]] | None:
        """Finds the instruction whose value a loop's body puts into an element of the loop's tuple."""
        body = self._bodies.get(instruction.name)
        if body is None or not index:
            return None
        root = self._program.computations[body].root
        if root.opcode != "tuple" or index[0] >= len(root.operands):
            return None
        made = self._program.instructions.get(root.operands[index[0]])
        return (made, index[1:]) if made is not None else None

    def _operand_name(self, instruction: Instruction) -> str:
        while instruction.opcode in _UNNAMED and instruction.operands and not instruction.op_name:
            following = self._program.instructions.get(instruction.operands[0])
            if following is None:
                break
            instruction = following
        return instruction.op_name

    @functools.cached_property
    def _elements(self) -> Mapping[tuple[str, int], Instruction]:
        """The instructions that take an element of a tuple, by tuple and element; their names are more precise."""
        return {
            (instruction.operands[0], int(instruction.text("index") or 0)): instruction
            for instruction in self._program.instructions.values()
            if instruction.opcode == "get-tuple-element" and instruction.operands and instruction.op_name
        }

    @functools.cached_property
    def _bodies(self) -> Mapping[str, str]:
        """The body of each loop, by the loop's name and by the name of the body's parameter."""
        found = {}
        for instruction in self._program.instructions.values():
            if instruction.opcode == "while" and (body := instruction.called.get("body")):
                found[instruction.name] = body
                found |= {inner.name: body for inner in self._program.computations[body].parameters.values()}
        return found

    @functools.cached_property
    def _carried(self) -> frozenset[str]:
        """The names of the values that the loops of the entry computation carry into their next round."""
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
        known = {number: argument(name) for number, name in self._arguments.items()}
        return {
            path: self._program.main.parameters[number].arrays[0]
            for number, (kind, path) in known.items()
            if kind is MemoryKind.PARAMETERS
        }


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape.dims if size > 1))


def _shape(value: PlacedValue) -> Shape | None:
    """Returns the array of a value; None for a tuple, which is a list of addresses."""
    return None if value.type.startswith("(") else parse_arrays(value.type)[0]


def _padded(shape: Shape) -> Iterator[PaddedSize]:
    """Yields each padded size of an array, with its share of the bytes of the padding."""
    padded = [(size, filled) for size, filled in zip(shape.dims, shape.in_tiles, strict=True) if filled > size > 0]
    growth = [math.log(filled / size) for size, filled in padded]
    for (size, filled), grown in zip(padded, growth, strict=True):
        yield PaddedSize(size, filled, 1, round(grown / sum(growth) * (shape.padded_bytes - shape.bytes)))
