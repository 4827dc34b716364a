"""The parts of a compiled program: instructions, and the computations that they are in."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from t5x_harness.aot.groups import Groups, groups_of
from t5x_harness.aot.shapes import Shape

_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([^\s,}]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
      name: as the text has it, without ``%``.
      opcode: such as ``fusion``.
      arrays: the arrays of its value, also within tuples.
      operands: names of the instructions whose values it takes.
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
    def channel(self) -> int | None:
        """The number of the channel that a collective uses."""
        found = _CHANNEL.search(self.attributes)
        return int(found[1]) if found else None

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

    @property
    def groups(self) -> Groups | None:
        """The devices of a collective; None if it names none in a known notation."""
        return groups_of(self.attributes)

    def text(self, key: str) -> str | None:
        """Returns the text of one attribute, such as ``dim_labels`` or ``window``."""
        found = re.search(rf"(?:^|[\s,]){key}=(\{{[^}}]*\}}|[^\s,]+)", self.attributes)
        return found[1] if found else None


@dataclasses.dataclass(frozen=True)
class Computation:
    """A sequence of instructions, in the order in which the device runs them if the program is scheduled.

    Attributes:
      name: as the text has it, without ``%``.
      instructions: in the text's order.
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
