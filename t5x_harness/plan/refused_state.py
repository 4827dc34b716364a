"""What T5X refuses while it makes the train state, recognized by where it is raised: some texts are only a name."""

from __future__ import annotations

import dataclasses
import re
import traceback
from pathlib import PurePath

from t5x_harness.system.misspelling import closest


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why there is no train state.

    Attributes:
      code: MSH13, MSH15, MSH17 or MOD02.
      message: what is wrong.
      parameters: parameters whose binding may be at fault.
      fix: the smallest fix.
      value: the value of the binding at fault, if its parameter is not known.
    """

    code: str
    message: str
    parameters: tuple[str, ...]
    fix: str
    value: str | None = None


_TYPES = ("bfloat16", "float32", "float16", "float64", "int32")
"""What a model may compute in."""
_FACTORING = frozenset({"adafactor.py", "factoring.py"})
_NAMING = frozenset({"train_state.py", "axis_names.py"})
_NO_METHOD = re.compile(r"(?:Optimizer ')?(\w+)'? .*`?derive_logical_axes`?")
_NO_STATE = re.compile(r"(?:The optax state|unregistered optax state type) ([\w.]+)")
_OVERRIDES = "override_params_axes_names"


def refusal_of(error: BaseException) -> Refusal | None:
    """Returns what an exception from tracing the model's initialization means, or None if it is of another kind."""
    if (unknown := re.search(r"data type '([^']*)' not understood", str(error))) is not None:
        close = closest(unknown[1], _TYPES)
        return Refusal(
            "MOD02",
            f"{unknown[1]!r} is not a type that JAX knows",
            (),
            f"write {close!r}" if close else f"use one of {', '.join(map(repr, _TYPES))}",
            unknown[1],
        )
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "t5x" in PurePath(frame.filename).parts]
    if not frames:
        return None
    file, function = PurePath(frames[-1].filename).name, frames[-1].name
    said = str(error).partition("\n")[0].strip("\"'")
    if file in _FACTORING and isinstance(error, KeyError | ValueError):
        missing = isinstance(error, KeyError) and said.isidentifier()
        what = f"its logical_factor_rules lack the axis {said}" if missing else said
        return Refusal(
            "MSH13",
            f"Adafactor cannot factor the parameters: {what}",
            ("logical_factor_rules", "factor_map"),
            f"add {said} to logical_factor_rules" if missing else "give each axis a rule: row, column, batch or none",
        )
    if isinstance(error, ValueError) and (unknown_to_partitioning := _unknown_optimizer(said)):
        return Refusal("MSH17", *unknown_to_partitioning)
    if isinstance(error, ValueError) and (file in _NAMING or function == _OVERRIDES):
        return Refusal(
            "MSH15",
            f"the model's axis names do not fit its parameters: {said}",
            ("params_axes_names_override",),
            "give each parameter one name for each of its axes",
        )
    return None


def _unknown_optimizer(said: str) -> tuple[str, tuple[str, ...], str] | None:
    """Returns the message, the parameters and the fix for an optimizer that does not say how to shard its state."""
    ready = "use one of t5x.adafactor and t5x.optimizers"
    if state := _NO_STATE.search(said):
        return (
            f"T5X does not know how to shard the state {state[1]} of an optax optimizer",
            ("optimizer_def", "optax_optimizer"),
            f"{ready}, or optax transformations of its own, whose states T5X knows",
        )
    if method := _NO_METHOD.match(said):
        return (
            f"T5X cannot shard the state of the optimizer {method[1]}: it has no method derive_logical_axes",
            ("optimizer_def",),
            f"{ready}, or give {method[1]} a derive_logical_axes(optimizer_state, param_logical_axes)",
        )
    return None
