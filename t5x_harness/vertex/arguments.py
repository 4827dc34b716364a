"""The arguments of T5X's ``main.py`` in a job: its run mode, its bindings, and the folder that it writes into.

T5X's configs leave the folder to the launcher: MODEL_DIR for training, EVAL_OUTPUT_DIR for evaluation,
INFER_OUTPUT_DIR for inference. Bindings are parsed early, before a TPU is waiting for the job.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Self

from t5x_harness.gin import parsing
from t5x_harness.gin.program import MAIN, GinProgram, MacroBinding
from t5x_harness.gin.values import Macro, is_required

_MEANT = {
    "compile": "precompile",  # the name in the guide to T5X on Vertex AI
    "evaluate": "eval",
    "inference": "infer",
    "pretrain": "train",
    "finetune": "train",
    "train_unfragmented": "train",  # appears in T5X's documentation, but was never published
}


class RunModeError(ValueError):
    """T5X has no such mode; the message lists its modes and the one that was probably meant."""


class RunMode(enum.StrEnum):
    """The modes of T5X's ``--run_mode`` that make sense as a job."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"
    PRECOMPILE = "precompile"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the run mode with a name.

        Raises:
          RunModeError: there is no such mode.
        """
        try:
            return cls(text)
        except ValueError:
            meant = f"; for {text!r} use {_MEANT[text]}" if text in _MEANT else ""
            raise RunModeError(f"--run_mode {text!r}: T5X's main takes {', '.join(cls)}{meant}") from None


_FLAGS = ("--gin_bindings=", "--gin.", "gin.")


class OverrideError(ValueError):
    """T5X could not read a binding; the message has Gin's reason and the form that the binding should have."""


def normalized(bindings: Iterable[str]) -> tuple[str, ...]:
    """Returns bindings in the form ``NAME = VALUE``.

    Args:
      bindings: bindings with or without the ``--gin.`` of the command line.

    Raises:
      OverrideError: Gin cannot read a binding, or a single string was passed instead of a list.
    """
    if isinstance(bindings, str):
        raise OverrideError(f"bindings are a list: [{bindings!r}], not {bindings!r}")
    return tuple(_normalized(text) for text in bindings)


def argument_of(binding: str) -> str:
    """Returns the argument of T5X's main for a normalized binding: ``--gin.NAME=VALUE``.

    A binding that is not a plain ``NAME = VALUE``, such as an import, becomes ``--gin_bindings``.
    """
    name, equals, value = binding.partition(" = ")
    is_plain = equals and not any(c.isspace() or c in "'\"{[(:" for c in name) and "\n" not in binding
    return f"--gin.{name}={value}" if is_plain else f"--gin_bindings={binding}"


def _normalized(text: str) -> str:
    inner = text.strip()
    while flag := next((flag for flag in _FLAGS if inner.startswith(flag)), None):
        inner = inner.removeprefix(flag).strip()
    name, equals, value = inner.partition("=")
    is_binding = equals and not inner.startswith(("import ", "from ", "include "))
    binding = f"{name.strip()} = {value.strip()}" if is_binding else inner
    statements, errors = parsing.parse(binding)
    if errors:
        raise OverrideError(f"{text}: Gin cannot read this: {errors[0].message}{_hint(name.strip(), value)}")
    if not statements:
        raise OverrideError(f"{text}: this binds nothing; a binding has the form NAME = VALUE")
    return binding


def _hint(name: str, value: str) -> str:
    """Returns the probable mistake in a binding that Gin cannot read."""
    value = value.strip()
    if '\\"' in value or "\\'" in value:
        return "; the backslashes are for a shell, and stay out of a binding"
    for quote in "'\"":
        if value.count(quote) % 2:
            return f"; a quote ({quote}) is missing"
    if value.endswith(","):
        return "; it ends in a comma"
    if value and not value.startswith(tuple("'\"@%[{(-0123456789")) and value not in ("True", "False", "None"):
        return f"; a string needs quotes of its own: {name} = '{value}'"
    return ""


_PARAMETERS: Mapping[RunMode, tuple[str, str, str]] = MappingProxyType(
    {
        RunMode.TRAIN: ("train", "model_dir", "MODEL_DIR"),
        RunMode.EVAL: ("evaluate", "output_dir", "EVAL_OUTPUT_DIR"),
        RunMode.INFER: ("infer", "output_dir", "INFER_OUTPUT_DIR"),
        RunMode.PRECOMPILE: ("precompile", "model_dir", "MODEL_DIR"),
    }
)
"""The function that T5X's main calls in each mode, its folder parameter, and the parameter's macro in T5X's configs."""

OUTPUT_MACROS = tuple(dict.fromkeys(macro for _, _, macro in _PARAMETERS.values()))
"""The macros for output folders, which T5X's own configs leave open."""


@dataclasses.dataclass(frozen=True)
class OutputBinding:
    """The folder that a run writes into, as far as its config says.

    Attributes:
      name: the macro or parameter that the config binds, such as ``MODEL_DIR`` or ``train_script.train.model_dir``.
      value: the folder, or None if the config leaves it open.
      macros: the macros that a job binds to its folder. The first is the one in T5X's own configs; open macros of other
        modes follow, because Gin accepts no config with an open macro.
    """

    name: str
    value: str | None
    macros: tuple[str, ...]


def output_macro_of(mode: RunMode) -> str:
    """Returns the macro in T5X's own configs for the output folder of a run mode."""
    return _PARAMETERS[mode][2]


def output_folder_of(program: GinProgram, mode: RunMode) -> OutputBinding:
    """Finds the output folder that a config names for a run mode."""
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
