"""Parses the text of a compiled program, as XLA's compilers write it, into computations and instructions.

The text is read line by line, so 50 MB take seconds. Attributes that only some instructions have, such as groups of
devices, are parsed on demand. The TPU compiler does not write down how often a loop runs, but the arithmetic of the
loop shows it.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from t5x_harness.aot.hlo import Computation, Instruction, parse_arrays

_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([^\s=]+) = (.*)$")
_AFTER_TUPLE = re.compile(r"\) ([a-z][\w-]*)\(")
_AFTER_ARRAY = re.compile(r"\S+ ([a-z][\w-]*)\(")
_OPERAND = re.compile(r"%([^\s,()]+)")


class ProgramTextError(ValueError):
    """The text is not a compiled program; the message names the line."""


@dataclasses.dataclass(frozen=True)
class Trips:
    """The number of rounds of a loop.

    Attributes:
      times: the number of rounds.
      is_most: whether the loop may end earlier, as decoding does when all sequences have ended.
    """

    times: int
    is_most: bool = False


@dataclasses.dataclass(frozen=True)
class HloProgram:
    """A compiled program, as one device runs it.

    Attributes:
      entry: the name of the computation that it begins with.
      computations: all computations by name.
    """

    entry: str
    computations: Mapping[str, Computation]

    @property
    def main(self) -> Computation:
        """The computation that it begins with."""
        return self.computations[self.entry]

    @functools.cached_property
    def instructions(self) -> Mapping[str, Instruction]:
        """The instructions of all computations by name."""
        return {each.name: each for computation in self.computations.values() for each in computation.instructions}

    @functools.cached_property
    def trips(self) -> Mapping[str, Trips]:
        """How often each ``while`` of any computation runs, by name, if the text shows it."""
        return {
            instruction.name: trips
            for computation in self.computations.values()
            for instruction in computation.instructions
            if instruction.opcode == "while"
            if (trips := trips_of(self.computations, computation, instruction)) is not None
        }


def read_program(file: Path) -> HloProgram:
    """Reads a file with the text of a compiled program.

    Raises:
      ProgramTextError: it is not such a text.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        return parse_program(lines, str(file))


def parse_program(lines: Iterable[str], where: str = "<text>") -> HloProgram:
    """Parses the lines of a compiled program's text.

    Args:
      lines: the text.
      where: the name for it in errors.

    Raises:
      ProgramTextError: it is not such a text.
    """
    entry = current = ""
    instructions: list[Instruction] = []
    computations: dict[str, Computation] = {}
    for number, line in enumerate(lines, start=1):
        if not current:
            if line[:1] in "%E" and (header := _COMPUTATION.match(line.rstrip())):
                current = header[2]
                entry = current if header[1] else entry
        elif line[:1] == "}":
            computations[current] = Computation(current, tuple(instructions))
            current, instructions = "", []
        elif line.strip():
            instructions.append(_instruction(line, f"{where}:{number}"))
    if not entry or current:
        raise ProgramTextError(
            f"{where}: not the text of a whole compiled program: " + ("it ends early" if current else "no ENTRY")
        )
    return HloProgram(entry, computations)


def _instruction(line: str, where: str) -> Instruction:
    found = _INSTRUCTION.match(line)
    rest = found[3] if found else ""
    at = (_AFTER_TUPLE.search(rest) if rest.startswith("(") else _AFTER_ARRAY.match(rest)) if found else None
    if found is None or at is None:
        raise ProgramTextError(f"{where}: not an instruction: {line.strip()[:120]}")
    opcode = at[1]
    end = _closing(rest, at.end())
    inside = rest[at.end() : end]
    has_literal = opcode in ("constant", "parameter")
    return Instruction(
        name=found[2],
        opcode=opcode,
        arrays=parse_arrays(rest[: at.start(1) - 1]),
        operands=() if has_literal else tuple(_OPERAND.findall(inside)),
        literal=inside if has_literal else "",
        attributes=rest[end + 1 :],
        is_root=bool(found[1]),
    )


def _closing(text: str, start: int) -> int:
    """Returns the position at which the parenthesis before ``start`` is closed."""
    close = text.find(")", start)
    if text.find("(", start, close) < 0:
        return close if close >= 0 else len(text)
    depth = 1
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if not depth:
            return index
    return len(text)


_COPIES = ("copy", "bitcast", "convert", "opt-barrier")
_INTEGER = re.compile(r"-?\d+")
_MIRRORED = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}


@dataclasses.dataclass(frozen=True)
class _Element:
    """An element of the tuple that a loop carries."""

    index: int


_Side = int | _Element
"""A side of a comparison or sum: a constant, or an element of the loop's tuple."""


def trips_of(computations: Mapping[str, Computation], around: Computation, loop: Instruction) -> Trips | None:
    """Counts the rounds of a loop from a constant to a constant in constant steps; None for any other loop.

    Args:
      computations: all computations of the program by name.
      around: the computation that contains the loop.
      loop: the ``while``.
    """
    called = loop.called
    condition, body = (computations.get(called.get(part, "")) for part in ("condition", "body"))
    if condition is None or body is None:
        return None
    carried = _followed(around, loop.operands[0])

    def constant(side: _Side | None) -> int | None:
        if not isinstance(side, _Element):
            return side
        is_unchanged = _side(_passed_on(body, side)) == side
        return _initial(around, carried, side) if is_unchanged else None

    found = []
    for counter, limit, direction, is_most in _comparisons(computations, condition):
        first, last, step = _initial(around, carried, counter), constant(limit), _step(body, counter)
        change = constant(step[0]) if step else None
        if first is not None and last is not None and change and step is not None:
            times = _times(first, last, change * step[1], direction)
            found += [Trips(times, is_most)] if times is not None else []
    return min(found, key=lambda trips: trips.times, default=None)


def _times(first: int, last: int, step: int, direction: str) -> int | None:
    distance = last - first
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction not in ("LT", "LE", "GT", "GE") or (direction in ("LT", "LE")) != (step > 0):
        return None
    return max(0, distance // step + 1 if direction in ("LE", "GE") else -(-distance // step))


def _comparisons(
    computations: Mapping[str, Computation], condition: Computation
) -> Iterator[tuple[_Element, _Side, str, bool]]:
    """Yields each counter, its limit, the direction of their comparison, and whether the condition has other parts."""
    root, where, outside = condition.root, condition, dict[str, str]()
    if root.opcode == "fusion":
        inner = computations.get(root.called.get("calls", ""))
        if inner is None:
            return
        outside = {inner.parameters[number].name: name for number, name in enumerate(root.operands)}
        root, where = inner.root, inner
    pending = [(root, False)]
    while pending:
        test, is_part = pending.pop()
        if test.opcode == "and":
            inside = (_followed(where, name) for name in test.operands)
            pending += [(instruction, True) for instruction in inside if instruction is not None]
        elif test.opcode == "compare" and (direction := test.text("direction")) is not None:
            left, right = (
                _side(_followed(condition, outside[name]) if name in outside else _followed(where, name))
                for name in test.operands
            )
            if isinstance(left, _Element) and right is not None:
                yield left, right, direction, is_part
            elif isinstance(right, _Element) and left is not None:
                yield right, left, _MIRRORED.get(direction, direction), is_part


def _step(body: Computation, counter: _Element) -> tuple[_Side, int] | None:
    """Returns the amount that a loop adds to its counter, with its sign; None if it uses it differently."""
    added = _passed_on(body, counter)
    if added is None or added.opcode not in ("add", "subtract"):
        return None
    left, right = (_side(_followed(body, name)) for name in added.operands)
    if left == counter and right is not None:
        return right, 1 if added.opcode == "add" else -1
    return (left, 1) if right == counter and left is not None and added.opcode == "add" else None


def _side(instruction: Instruction | None) -> _Side | None:
    if instruction is None:
        return None
    if instruction.opcode == "constant":
        return int(instruction.literal) if _INTEGER.fullmatch(instruction.literal) else None
    index = instruction.text("index") if instruction.opcode == "get-tuple-element" else None
    return _Element(int(index)) if index is not None else None


def _passed_on(body: Computation, element: _Element) -> Instruction | None:
    root = body.root
    if root.opcode != "tuple" or element.index >= len(root.operands):
        return None
    return _followed(body, root.operands[element.index])


def _initial(around: Computation, carried: Instruction | None, element: _Element) -> int | None:
    """Returns the constant that an element of a loop's tuple has initially."""
    if carried is None or carried.opcode != "tuple" or element.index >= len(carried.operands):
        return None
    value = _side(_followed(around, carried.operands[element.index]))
    return value if isinstance(value, int) else None


def _followed(computation: Computation, name: str) -> Instruction | None:
    """Follows copies of a value back to the instruction that makes it."""
    instruction = computation.by_name.get(name)
    while instruction is not None and instruction.opcode in _COPIES and instruction.operands:
        instruction = computation.by_name.get(instruction.operands[0])
    return instruction
