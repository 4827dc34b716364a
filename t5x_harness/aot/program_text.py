"""Parses the text of a compiled program, as XLA's compilers write it, into computations and instructions.

The text is read line by line, so 50 MB take seconds. Attributes that only some instructions have, such as groups of
devices, are parsed on demand.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from t5x_harness.aot.instructions import Computation, Instruction
from t5x_harness.aot.loops import Trips, trips_of
from t5x_harness.aot.shapes import parse_arrays

_MODULE = re.compile(r"HloModule ([^\s,]+)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([^\s=]+) = (.*)$")
_AFTER_TUPLE = re.compile(r"\) ([a-z][\w-]*)\(")
_AFTER_ARRAY = re.compile(r"\S+ ([a-z][\w-]*)\(")
_OPERAND = re.compile(r"%([^\s,()]+)")


class ProgramTextError(ValueError):
    """A text is not a compiled program; the message has the line."""


@dataclasses.dataclass(frozen=True)
class HloProgram:
    """A compiled program, as one device runs it.

    Attributes:
      name: the name of the module.
      entry: the name of the computation that it begins with.
      computations: all computations by name.
    """

    name: str
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

    def trips(self, loop: Instruction) -> Trips | None:
        """Returns how often a ``while`` of any computation runs; None if the text does not show it."""
        return self._trips.get(loop.name)

    @functools.cached_property
    def _trips(self) -> Mapping[str, Trips]:
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
      where: what errors call it.

    Raises:
      ProgramTextError: it is not such a text.
    """
    name = entry = current = ""
    instructions: list[Instruction] = []
    computations: dict[str, Computation] = {}
    for number, line in enumerate(lines, start=1):
        if not current:
            if not name and (module := _MODULE.match(line)):
                name = module[1]
            elif line[:1] in "%E" and (header := _COMPUTATION.match(line.rstrip())):
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
    return HloProgram(name, entry, computations)


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
