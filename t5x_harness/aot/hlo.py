"""The parts of a compiled program, with equal parts counted as one.

The parts are shapes with their layouts, groups of devices, instructions, and computations.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

HBM = 0
"""The number of the memory space of a device's large memory; other spaces are on the chip."""

_ARRAY = re.compile(r"(\w+)\[([\d,<=?]*)\](?:\{([^}]*)\})?")
_TILES = re.compile(r"T(?:\([\d,*]+\))+")
_TILE = re.compile(r"\(([\d,*]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One array as the compiler lays it out.

    Attributes:
      dtype: XLA's name of the element type, such as ``bf16``.
      dims: the sizes.
      minor_to_major: the numbers of the dimensions, starting with the one whose elements are adjacent in memory.
      tiles: the sizes of the tiles in which memory is laid out, outermost first; empty if there are none.
      space: the number of the memory space, ``HBM`` or one on the chip.
    """

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = HBM

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.dims)

    @property
    def bits(self) -> int:
        """The bits of one element, such as 16 for ``bf16``."""
        size = re.search(r"\d+", self.dtype)
        return 8 if self.dtype == "pred" else int(size[0]) if size else 0

    @property
    def bytes(self) -> int:
        """The bytes of its elements without padding."""
        return -(-self.elements * self.bits // 8)

    @property
    def padded_bytes(self) -> int:
        """The bytes of its tiles, including the parts that hold nothing."""
        if not self.tiles:
            return self.bytes
        # Tiles cover the minor dimensions. A further tile divides the sizes of a tile, and pads them once more.
        sizes = [self.dims[number] for number in reversed(self.minor_to_major)]
        for tile in self.tiles:
            sizes = [1] * (len(tile) - len(sizes)) + sizes
            covered = len(sizes) - len(tile)
            counts = [-(-size // part) for size, part in zip(sizes[covered:], tile, strict=True)]
            sizes = [*sizes[:covered], *counts, *tile]
        return -(-math.prod(sizes) * self.bits // 8)

    @property
    def in_tiles(self) -> tuple[int, ...]:
        """The sizes padded to the outermost tiles; inner tiles divide these, or add their own padding."""
        sizes = list(self.dims)
        tile = self.tiles[0] if self.tiles else ()
        for number, part in zip(self.minor_to_major, reversed(tile), strict=False):
            sizes[number] = -(-sizes[number] // part) * part
        return tuple(sizes)


@functools.cache
def parse_arrays(text: str) -> tuple[Shape, ...]:
    """Parses a type such as ``bf16[8,128]{1,0:T(8,128)(2,1)S(1)}``, or the arrays of a tuple in order.

    Raises:
      ValueError: the text is neither an array nor a tuple.
    """
    arrays = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        order, _, rest = layout.partition(":")
        dims = _numbers(sizes)
        tiles = _TILES.match(rest)
        space = _SPACE.search(rest)
        arrays.append(
            Shape(
                dtype,
                dims,
                _numbers(order) or tuple(reversed(range(len(dims)))),
                tuple(map(_numbers, _TILE.findall(tiles[0]))) if tiles else (),
                int(space[1]) if space else HBM,
            )
        )
    if not arrays and not text.lstrip().startswith("("):
        raise ValueError(f"not a type: {text[:80]}")
    return tuple(arrays)


_PAIRS = re.compile(r"\bsource_target_pairs=\{([\d,{}\s]*)\}")
_LISTED = re.compile(r"\breplica_groups=\{([\d,{}\s]*)\}")
_IOTA = re.compile(r"\breplica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_OF_MESH = re.compile(r"\breplica_groups=@?mesh[\[<]([^\]>]*)[\]>](,? ?device_ids=\S+)? \{([^}]*)\}")
_MESH_AXIS = re.compile(r"['\"]?([\w.-]+)['\"]?=(\d+)")
_USED_AXIS = re.compile(r"['\"]?([\w.-]+)['\"]?(?::\((\d+)\)(\d+))?")


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups of devices that take part in a collective together.

    Attributes:
      members: the positions in the program's device assignment, a tuple for each group; empty if all are in one group.
      pairs: the source and target of each transfer, for a permutation.
    """

    members: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


def groups_of(attributes: str) -> Groups | None:
    """Parses the devices of a collective in any of XLA's notations; returns None for an unknown notation."""
    if pairs := _PAIRS.search(attributes):
        numbers = _numbers(pairs[1])
        return Groups(pairs=tuple(zip(numbers[::2], numbers[1::2], strict=True)))
    if listed := _LISTED.search(attributes):
        return Groups(tuple(_numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", listed[1]) if group))
    if iota := _IOTA.search(attributes):
        sizes = _numbers(iota[2])
        ids = np.arange(math.prod(sizes)).reshape(sizes)
        if iota[3]:
            ids = ids.transpose(_numbers(iota[3]))
        return Groups(_rows(ids.reshape(-1, _numbers(iota[1])[-1])))
    if mesh := _OF_MESH.search(attributes):
        return _groups_of_axes(mesh[1], mesh[2], mesh[3])
    return None


def _groups_of_axes(axes: str, devices: str | None, used: str) -> Groups | None:
    """Returns the groups that some axes of a mesh span, with devices numbered in the order of the mesh."""
    if devices and "iota" not in devices:
        return None
    sizes = [(name, int(size)) for name, size in _MESH_AXIS.findall(axes)]
    chosen: dict[str, tuple[int, int]] = {}
    for name, before, size in _USED_AXIS.findall(used):
        whole = dict(sizes).get(name)
        if whole is None:
            return None
        chosen[name] = (int(before), int(size)) if size else (1, whole)
    dims: list[int] = []
    varying: list[int] = []
    for name, size in sizes:
        before, inside = chosen.get(name, (1, 1))
        varying.append(len(dims) + 1)
        dims += [before, inside, size // before // inside]
    ids = np.arange(math.prod(dims)).reshape(dims)
    kept = [axis for axis in range(len(dims)) if axis not in varying]
    count = math.prod(dims[axis] for axis in varying)
    return Groups(_rows(ids.transpose([*kept, *varying]).reshape(-1, count)))


def _rows(ids: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, ids.tolist()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([^\s,}]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
      name: the name as the text has it, without ``%``.
      opcode: the operation, such as ``fusion``.
      arrays: the arrays of its value, also within tuples.
      operands: the names of the instructions whose values it takes.
      literal: the text between its parentheses, for constants and parameters.
      attributes: the text after its operands.
      is_root: whether its value is the value of its computation.
    """

    name: str
    opcode: str
    arrays: tuple[Shape, ...]
    operands: tuple[str, ...]
    literal: str
    attributes: str
    is_root: bool

    @property
    def op_name(self) -> str:
        """JAX's name for it, such as ``jit(train_step)/…/mlp/wi_0/dot_general``; empty if JAX gave none."""
        found = _OP_NAME.search(self.attributes)
        return re.sub(r"\\(.)", r"\1", found[1]) if found else ""

    @property
    def called(self) -> Mapping[str, str]:
        """The computations that it calls, by their role: ``calls``, ``to_apply``, ``body``, ``condition``."""
        return dict(_CALLED.findall(self.attributes))

    @property
    def branches(self) -> tuple[str, ...]:
        """The computations that a conditional chooses from."""
        if found := _BRANCHES.search(self.attributes):
            return tuple(name.strip().removeprefix("%") for name in found[1].split(","))
        return tuple(name for part, name in self.called.items() if part.endswith("_computation"))

    def text(self, key: str) -> str | None:
        """Returns the text of one attribute, such as ``dim_labels`` or ``window``."""
        found = re.search(rf"(?:^|[\s,]){key}=(\{{[^}}]*\}}|[^\s,]+)", self.attributes)
        return found[1] if found else None


@dataclasses.dataclass(frozen=True)
class Computation:
    """A sequence of instructions, in the order in which the device runs them if the program is scheduled.

    Attributes:
      name: the name as the text has it, without ``%``.
      instructions: the instructions, in the text's order.
    """

    name: str
    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """The instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def root(self) -> Instruction:
        """The instruction whose value is the computation's."""
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    @functools.cached_property
    def parameters(self) -> Mapping[int, Instruction]:
        """Its parameters by number."""
        return {int(i.literal): i for i in self.instructions if i.opcode == "parameter"}

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """The instructions that take a value, by the value's name."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                found.setdefault(operand, []).append(instruction)
        return {name: tuple(users) for name, users in found.items()}


@dataclasses.dataclass(frozen=True)
class Tally:
    """Equal things, counted: equal in the fields before ``count``; ``count`` and the fields after it add up."""

    @property
    def what(self) -> tuple[object, ...]:
        """The values that are equal."""
        values = vars(self)
        return tuple(values.values())[: list(values).index("count")]

    @property
    def numbers(self) -> Mapping[str, int]:
        """The values that add up, by field."""
        values = vars(self)
        return dict(list(values.items())[list(values).index("count") :])


T = TypeVar("T", bound=Tally)


def added_up(tallies: Iterable[tuple[T, float]]) -> tuple[T, ...]:
    """Joins the tallies of equal things, and leaves out those whose count is 0.

    Args:
      tallies: the tallies, each with the factor by which its numbers are multiplied.

    Returns:
      The joined tallies, sorted by the number after the count, the largest first.
    """
    equal: dict[tuple[object, ...], list[tuple[T, float]]] = {}
    for tally, factor in tallies:
        equal.setdefault(tally.what, []).append((tally, factor))
    joined = []
    for same in equal.values():
        first, _ = same[0]
        totals = {
            name: max(0, round(sum(factor * tally.numbers[name] for tally, factor in same))) for name in first.numbers
        }
        if totals["count"]:
            joined.append(dataclasses.replace(first, **totals))
    return tuple(sorted(joined, key=lambda tally: -list(tally.numbers.values())[1]))
