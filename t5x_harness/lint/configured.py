"""What a config gives the run's function: values of its parameters, and of the objects that are built for it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from t5x_harness.gin.program import ENTRIES, Binding, MacroBinding
from t5x_harness.gin.values import Reference
from t5x_harness.lint.rule import Context
from t5x_harness.spec import Mode

_CHECKPOINT = "t5x.utils.CheckpointConfig"
_SAVE = "t5x.utils.SaveCheckpointConfig"
_RESTORE = "t5x.utils.RestoreCheckpointConfig"
_STEP_IN_PATH = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/?$")


@dataclasses.dataclass(frozen=True)
class ParameterValue:
    """The value of a parameter, with macros followed.

    Attributes:
      value: a literal or a reference; a macro if nothing defines it.
      at: the statement that gives it, for the place of a finding.
      binding: the parameter's own binding, which differs if it reads a macro.
    """

    value: Any
    at: Binding | MacroBinding
    binding: Binding

    def sibling(self, param: str) -> str:
        """Returns another parameter of the same object, written as in the file that binds this one."""
        return f"{str(self.binding).removesuffix(self.binding.param)}{param}"


@dataclasses.dataclass(frozen=True)
class ConfiguredObject:
    """The run's function, or an object that is built for it; false if the config has none.

    Attributes:
      context: the config.
      target: full name of the function or class; empty for none, all of whose parameters keep their defaults.
      scope: the scope that it is called in.
    """

    context: Context
    target: str = ""
    scope: str = ""

    def __bool__(self) -> bool:
        return bool(self.target)

    def parameter(self, param: str) -> ParameterValue | None:
        """Returns the value that the config gives a parameter; None if it keeps its default."""
        binding = self.context.program.lookup(self.target, param, self.scope)
        if binding is None:
            return None
        at = self.context.program.resolve(binding)
        return ParameterValue(at.value, at, binding)

    def value(self, param: str, default: Any = None) -> Any:
        """Returns a parameter's value, or ``default`` if the config does not give it."""
        given = self.parameter(param)
        return default if given is None else given.value

    def built(self, param: str, *targets: str) -> ConfiguredObject:
        """Returns the object that a parameter is given, if it is built from one of ``targets``.

        It is called in the scope of this object, unless its reference opens another one.
        """
        reference = self.value(param)
        if not isinstance(reference, Reference) or reference.target not in targets:
            return ConfiguredObject(self.context)
        return ConfiguredObject(self.context, reference.target, reference.scope or self.scope)


def run_function(context: Context, *modes: Mode) -> ConfiguredObject:
    """Returns the function that the run calls, if its mode is one of ``modes``, or any if there are none."""
    target = context.program.entry
    if target is None or (modes and ENTRIES[target] not in modes):
        return ConfiguredObject(context)
    return ConfiguredObject(context, target)


def evaluates(train: ConfiguredObject) -> bool:
    """Returns whether there is something to evaluate during training; if not, T5X ignores the eval period."""
    return any(train.value(f"{kind}_dataset_cfg") is not None for kind in ("train_eval", "infer_eval"))


def save_config(context: Context) -> ConfiguredObject:
    """Returns how a training run saves checkpoints, if it does so with T5X's own class."""
    return run_function(context, Mode.TRAIN).built("checkpoint_cfg", _CHECKPOINT).built("save", _SAVE)


def restore_config(context: Context) -> ConfiguredObject:
    """Returns how the run restores the checkpoint it begins with, if it does so with T5X's own class."""
    run = run_function(context)
    if context.program.mode is not Mode.TRAIN:
        return run.built("restore_checkpoint_cfg", _RESTORE)
    return run.built("checkpoint_cfg", _CHECKPOINT).built("restore", _RESTORE)


def step_in(path: Any) -> int | None:
    """Returns the step that the path of a checkpoint names; None if it names none."""
    match = _STEP_IN_PATH.search(path) if isinstance(path, str) else None
    return int(match[1]) if match else None


def initial_step(context: Context) -> tuple[int, ParameterValue] | None:
    """Returns the step that the run begins at and the path that names it.

    Returns None if the path names no step, or if transformations of the state may change the step.
    """
    restore = restore_config(context)
    path = restore.parameter("path")
    step = step_in(path.value) if path is not None else None
    if path is None or step is None or restore.value("assignment_map") is not None:
        return None
    return None if restore.value("state_transformation_fns", ()) not in ((), []) else (step, path)


def start_step(context: Context) -> int | None:
    """Returns the step that the run begins at: 0 if nothing is restored, None if the text does not show it."""
    initial = initial_step(context)
    if initial is not None:
        return initial[0]
    return None if restore_config(context).value("path") else 0
