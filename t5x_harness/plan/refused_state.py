"""What T5X refuses while it makes the train state, known by where in T5X it is raised: some texts are only a name."""

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
      code: MSH13, MSH15 or MOD02.
      message: what is wrong.
      parameters: parameters of configurables one of whose bindings may be at fault.
      fix: the smallest fix.
      value: what a binding at fault holds, where its parameter is not known.
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
_OVERRIDES = "override_params_axes_names"


def refusal_of(error: BaseException) -> Refusal | None:
    """Returns what an exception of tracing the model's initialisation means; None if it is of another kind."""
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
    if isinstance(error, ValueError) and (file in _NAMING or function == _OVERRIDES):
        return Refusal(
            "MSH15",
            f"the model's axis names do not fit its parameters: {said}",
            ("params_axes_names_override",),
            "give each parameter one name for each of its axes",
        )
    return None
