"""How often a loop of a compiled program runs.

The TPU compiler does not write that down, but the arithmetic of the loop shows it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.aot.instructions import Computation, Instruction

_COPIES = ("copy", "bitcast", "convert", "opt-barrier")
_MIRRORED = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}


@dataclasses.dataclass(frozen=True)
class _Element:
    """An element of the tuple that a loop carries."""

    index: int


_Side = int | _Element
"""A side of a comparison or sum: a constant, or an element of the loop's tuple."""


@dataclasses.dataclass(frozen=True)
class Trips:
    """How often a loop runs.

    Attributes:
      times: the number.
      is_most: whether the loop may end earlier, as decoding does when all sequences have ended.
    """

    times: int
    is_most: bool = False


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
        return _initial(around, carried, side) if _is_unchanged(body, side) else None

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
    """Yields each counter, its limit, the comparison's direction, and whether it is only a part of the condition."""
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
    """Returns the amount that a loop adds to its counter, and the sign; None if it does anything else with it."""
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
        return _integer(instruction)
    index = instruction.text("index") if instruction.opcode == "get-tuple-element" else None
    return _Element(int(index)) if index is not None else None


def _is_unchanged(body: Computation, element: _Element) -> bool:
    """Checks whether a loop passes an element on unchanged."""
    return _side(_passed_on(body, element)) == element


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


def _integer(constant: Instruction) -> int | None:
    try:
        value = json.loads(constant.literal)
    except ValueError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
