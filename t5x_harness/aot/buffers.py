"""The compiler's own account of a program's memory: what it allocated, and when each value in it is live.

The account is in two text files that the compiler writes with the program: ``*-buffer-assignment.txt`` and
``*-live-range.txt``. JAX offers no access to it before code is generated, which takes nine tenths of a compilation.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from t5x_harness.aot.hlo import HBM

_ALLOCATION = re.compile(r"allocation \d+: (?:size (\d+), )?(?:color (\d+), )?(?:page \d+, )?(.*)")
_VALUE = re.compile(r" value: <\d+ (.+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)")
_RANGE = re.compile(r"\s+(.+?)(?: \(phi\))?(\{[\d,]*\})(?: \(phi\))?:(\d+)-(\d+)$")
_SEQUENCE = re.compile(r"\s+(\d+):(\S+)$")


class MemoryTextError(ValueError):
    """A file is not the compiler's account of a program's memory; the message names it."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedValue:
    """A value in an allocation.

    Attributes:
      name: the instruction that makes it.
      index: its place in that instruction's tuple; empty for one that is not a tuple.
      bytes: the size with padding.
      offset: the offset from the allocation's start.
      type: the type, as the program's text has it.
      first: the number of the first instruction at which it is live.
      last: the number of the last such instruction; -1 for a value that the file of live ranges does not have.
    """

    name: str
    index: tuple[int, ...]
    bytes: int
    offset: int
    type: str
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A piece of memory that the compiler allocated.

    Attributes:
      bytes: the size.
      space: the memory space that it is in.
      kind: the compiler's words: ``parameter``, ``constant``, ``preallocated-temp``, ``thread-local``, or empty.
      parameter: the number of the program's parameter that it holds.
      values: the values that it holds, one after the other or side by side.
    """

    bytes: int
    space: int
    kind: str
    parameter: int | None
    values: tuple[PlacedValue, ...]

    @property
    def is_temporary(self) -> bool:
        """Whether it holds values that are needed only during a run."""
        return self.kind == "preallocated-temp"

    @property
    def slots(self) -> Mapping[int, Sequence[PlacedValue]]:
        """Its values by offset. Values at one offset follow each other in time, or are the same array."""
        found: dict[int, list[PlacedValue]] = {}
        for value in self.values:
            found.setdefault(value.offset, []).append(value)
        return found


@dataclasses.dataclass(frozen=True)
class BufferAssignment:
    """All memory of a program.

    Attributes:
      allocations: the allocations, in the compiler's order.
      sequence: the names of the instructions in the order in which the device runs them; live ranges are positions in
        it.
    """

    allocations: tuple[Allocation, ...]
    sequence: tuple[str, ...]

    def live_bytes(self) -> np.ndarray:
        """Returns the bytes of temporary values in the large memory that are live at each instruction."""
        total = np.zeros(len(self.sequence) + 2, dtype=np.int64)
        for allocation in self.allocations:
            if allocation.is_temporary and allocation.space == HBM:
                for values in allocation.slots.values():
                    highest = np.zeros_like(total)
                    for value in values:
                        part = highest[value.first : value.last + 1]
                        np.maximum(part, value.bytes, out=part)
                    total += highest
        return total


def read_assignment(assignment: Path, live_ranges: Path) -> BufferAssignment:
    """Reads both files.

    Raises:
      MemoryTextError: a file is not in the compiler's format.
    """
    sequence, ranges = _read_ranges(live_ranges)
    allocations = tuple(_read_allocations(assignment, ranges))
    if not allocations:
        raise MemoryTextError(f"{assignment}: no allocation in it: not a whole buffer assignment of XLA")
    return BufferAssignment(allocations, sequence)


def _read_ranges(file: Path) -> tuple[tuple[str, ...], Mapping[tuple[str, str], tuple[int, int]]]:
    sequence: list[str] = []
    ranges: dict[tuple[str, str], tuple[int, int]] = {}
    section = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.rstrip()
            if text.endswith(":") and "{" not in text:
                if text.lstrip().startswith("Live ranges at"):
                    break
                section = text.strip()
            elif section == "InstructionSequence:" and (found := _SEQUENCE.match(text)):
                sequence.append(found[2])
            elif section == "BufferLiveRange:" and (found := _RANGE.match(text)):
                ranges[found[1], found[2]] = int(found[3]), int(found[4])
    if not sequence or not ranges:
        raise MemoryTextError(f"{file}: no sequence of instructions with live ranges in it")
    return tuple(sequence), ranges


def _read_allocations(file: Path, ranges: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[Allocation]:
    head: re.Match[str] | None = None
    values: list[PlacedValue] = []
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := _ALLOCATION.match(line):
                if head is not None:
                    yield _allocation(head, values)
                head, values = found, []
            elif head is not None and (found := _VALUE.match(line)):
                values.append(_placed(found, ranges))
            elif head is not None and line.strip():
                break  # the text after the allocations repeats them
    if head is not None:
        yield _allocation(head, values)


def _placed(found: re.Match[str], ranges: Mapping[tuple[str, str], tuple[int, int]]) -> PlacedValue:
    name, index = found[1], found[2] or "{}"
    first, last = ranges.get((name, index), (0, -1))
    numbers = tuple(int(number) for number in re.findall(r"\d+", index))
    return PlacedValue(name, numbers, int(found[3]), int(found[4]), found[5].strip(), first, last)


def _allocation(head: re.Match[str], values: list[PlacedValue]) -> Allocation:
    words = head[3].rstrip(":")
    parameter = re.match(r"parameter (\d+)", words)
    kind = next((kind for kind in ("parameter", "constant", "preallocated-temp", "thread-local") if kind in words), "")
    return Allocation(
        bytes=int(head[1] or 0),
        space=int(head[2] or HBM),
        kind=kind,
        parameter=int(parameter[1]) if parameter else None,
        values=tuple(values),
    )
