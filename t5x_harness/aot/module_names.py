"""What JAX's name for an instruction or argument of a compiled step says: its use, its module, its primitive."""

from __future__ import annotations

import dataclasses
import enum
import re

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


class MemoryKind(enum.StrEnum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    INPUTS = "inputs"
    """Batches, random keys, the learning rate: every argument that is neither of the two."""
    GRADIENTS = "gradients"
    TEMPORARIES = "activations and temporaries"
    CONSTANTS = "constants"
    OUTPUTS = "outputs"
    PADDING = "padding"


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a step.

    Attributes:
      kind: what it holds.
      path: its name within that, such as ``decoder/layers_0/mlp/wo/kernel``.
    """

    kind: MemoryKind
    path: str


def argument(name: str) -> Argument:
    """Parses the name of an argument, such as ``train_state._optimizer.target['decoder']['wo']['kernel']``.

    T5X's train states have parameters in ``_optimizer.target`` and the rest in ``_optimizer.state``; its steps for
    evaluation and prediction take parameters as ``params``.
    """
    steps = [name.partition(".")[0].partition("[")[0], *(plain or key for plain, key in _STEP.findall(name))]
    if "target" in steps and steps[max(0, steps.index("target") - 1)] in ("_optimizer", "optimizer"):
        return Argument(MemoryKind.PARAMETERS, "/".join(steps[steps.index("target") + 1 :]))
    if "_optimizer" in steps or "optimizer" in steps:
        return Argument(MemoryKind.OPTIMIZER, "/".join(step for step in steps[1:] if step not in _STATE))
    for start in ("params", "_params"):
        if start in steps[:2]:
            return Argument(MemoryKind.PARAMETERS, "/".join(steps[steps.index(start) + 1 :]))
    return Argument(MemoryKind.INPUTS, "/".join(steps))


def module_of(op_name: str) -> str:
    """Returns the module that an instruction comes from, such as ``decoder/layers_1/mlp/wi_0``; empty if it has none.

    Args:
      op_name: JAX's name for it: transformed functions, then Flax's modules, then the primitive.
    """
    if _ARGUMENT.match(op_name):
        return argument(op_name).path
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


def is_backward(op_name: str) -> bool:
    """Checks whether an instruction is part of the backward pass."""
    return _BACKWARD in op_name
