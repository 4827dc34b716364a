"""The folder that a run of T5X writes into, and the parameter and the macro that name it.

T5X's configs leave it to the launcher: MODEL_DIR for training, EVAL_OUTPUT_DIR for evaluation, INFER_OUTPUT_DIR for
inference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from t5x_harness.gin.program import MAIN, GinProgram, MacroBinding
from t5x_harness.gin.values import Macro, is_required
from t5x_harness.vertex.run_mode import RunMode

_PARAMETERS: Mapping[RunMode, tuple[str, str, str]] = MappingProxyType(
    {
        RunMode.TRAIN: ("train", "model_dir", "MODEL_DIR"),
        RunMode.EVAL: ("evaluate", "output_dir", "EVAL_OUTPUT_DIR"),
        RunMode.INFER: ("infer", "output_dir", "INFER_OUTPUT_DIR"),
        RunMode.PRECOMPILE: ("precompile", "model_dir", "MODEL_DIR"),
    }
)
"""For each mode the function that T5X's main calls, its parameter, and the macro for that in T5X's own configs."""

OUTPUT_MACROS = tuple(dict.fromkeys(macro for _, _, macro in _PARAMETERS.values()))
"""The macros that T5X's own configs leave open for a folder to write into."""


@dataclasses.dataclass(frozen=True)
class OutputBinding:
    """The folder that a run writes into, as far as its config says.

    Attributes:
      name: what the config binds, such as ``MODEL_DIR`` or ``train_script.train.model_dir``.
      value: the folder, or None if the config leaves it open.
      macros: the macros that a job binds to its folder. The first is that of T5X's own configs; open macros of other
        modes follow, because Gin accepts no config with an open macro.
    """

    name: str
    value: str | None
    macros: tuple[str, ...]


def output_macro_of(mode: RunMode) -> str:
    """Returns the macro of T5X's own configs for the folder that a run in a mode writes into."""
    return _PARAMETERS[mode][2]


def output_folder_of(program: GinProgram, mode: RunMode) -> OutputBinding:
    """Finds the folder that a config names for its run in a mode."""
    function, parameter, macro = _PARAMETERS[mode]
    bound = program.lookup(f"{MAIN}.{function}", parameter) or program.macros.get(macro)
    final = program.resolve(bound) if bound is not None else None
    name = macro if final is None else str(final)
    is_macro = final is None or isinstance(final, MacroBinding)
    if final is not None and isinstance(final.value, Macro) and not is_required(final.value):
        name, is_macro = final.value.name, True
    open_ones = (each.name for each in program.required_macros if each.name in OUTPUT_MACROS)
    macros = dict.fromkeys([macro, *([name] if is_macro else []), *open_ones])
    value = final.value if final is not None and isinstance(final.value, str) else None
    return OutputBinding(name, value, tuple(macros))
