"""The input of lint rules: a config's statements, and the values that they give the run's function and its objects."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.gin.program import BINDINGS, ENTRIES, Binding, GinProgram, MacroBinding
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import Reference
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Location, Mode, StandInPolicy

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Context:
    """The input of a rule.

    Attributes:
      program: the config.
      snapshot: the known parameters of the configurables that it names.
      slice: the slice that the config is meant for; None if the user did not name one.
    """

    program: GinProgram
    snapshot: Snapshot
    slice: Slice | None = None
    _remembered: dict[Callable[[Context], Any], Any] = dataclasses.field(default_factory=dict, repr=False)

    def remembered(self, find: Callable[[Context], Value]) -> Value:
        """Returns what a function finds in this config, which several rules look at, and calls it once."""
        if find not in self._remembered:
            self._remembered[find] = find(self)
        found: Value = self._remembered[find]
        return found

    def in_t5x(self, location: Location) -> bool:
        """Returns whether a place is in one of T5X's own files, which users do not fix unless they named the file."""
        named = (BINDINGS, *self.program.spec.gin_files)
        return location.file not in named and self.program.is_of_t5x(location.file)

    def place(self, at: Binding | MacroBinding | Location | None) -> tuple[Location | None, str | None]:
        """Returns the location and the name of a statement; for a location, the location itself."""
        return (at.location, str(at)) if isinstance(at, (Binding, MacroBinding)) else (at, None)


def where(location: Location) -> str:
    """Returns a place as it is named in a sentence: ``finetune.gin:12``, or the command line."""
    return "the command line" if location.file == BINDINGS else str(location)


def shown_folder(folder: str, program: GinProgram) -> str:
    """Returns a searched folder for display, relative to the working directory if below it; T5X's is named in words."""
    if folder == program.t5x_parent:
        return "the folder of t5x"
    path, cwd = Path(folder), Path(program.spec.cwd).absolute()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else folder


CHECKPOINT_MACROS = ("INITIAL_CHECKPOINT_PATH", "CHECKPOINT_PATH")
"""The macros that name the initial checkpoint in T5X's configs: for training, and for all other modes."""

REPLACED_MACROS = (
    "MODEL_DIR",
    "EVAL_OUTPUT_DIR",
    "INFER_OUTPUT_DIR",
    "MIXTURE_OR_TASK_NAME",
    *CHECKPOINT_MACROS,
    "TRAIN_STEPS",
)
"""All macros whose values the controller sets."""


_CHECKPOINT = "t5x.utils.CheckpointConfig"
_RESTORE = "t5x.utils.RestoreCheckpointConfig"


@dataclasses.dataclass(frozen=True)
class ParameterValue:
    """The value of a parameter, with macros followed.

    Attributes:
      value: a literal or a reference; a macro if nothing defines it.
      at: the statement that sets it, for the place of a finding.
      binding: the parameter's own binding, which differs if it reads a macro.
    """

    value: Any
    at: Binding | MacroBinding
    binding: Binding

    def sibling(self, param: str) -> str:
        """Returns the name of another parameter of the same object, written as in the file that binds this one."""
        return f"{str(self.binding).removesuffix(self.binding.param)}{param}"


@dataclasses.dataclass(frozen=True)
class ConfiguredObject:
    """The run's function, or an object that is built for it; false if the config has none.

    Attributes:
      context: the config.
      target: the full name of the function or class; empty for none, in which case all parameters keep their defaults.
      scope: the scope in which it is called.
    """

    context: Context
    target: str = ""
    scope: str = ""

    def __bool__(self) -> bool:
        return bool(self.target)

    def parameter(self, param: str, kind: type | tuple[type, ...] = object) -> ParameterValue | None:
        """Returns the value that the config gives a parameter; None if it keeps its default, or has another type."""
        binding = self.context.program.lookup(self.target, param, self.scope)
        if binding is None:
            return None
        at = self.context.program.resolve(binding)
        return ParameterValue(at.value, at, binding) if isinstance(at.value, kind) else None

    def value(self, param: str, default: Any = None) -> Any:
        """Returns a parameter's value, or ``default`` if the config does not give it."""
        given = self.parameter(param)
        return default if given is None else given.value

    def built(self, param: str, *targets: str) -> ConfiguredObject:
        """Returns the object that a parameter is bound to, if it is built from one of ``targets``.

        It is called in the scope of this object, unless its reference opens another one.
        """
        reference = self.value(param)
        if not isinstance(reference, Reference) or reference.target not in targets:
            return ConfiguredObject(self.context)
        return ConfiguredObject(self.context, reference.target, reference.scope or self.scope)


def run_function(context: Context, *modes: Mode) -> ConfiguredObject:
    """Returns the function that the run calls, if its mode is one of ``modes``; without ``modes``, any mode counts."""
    target = context.program.entry
    if target is None or (modes and ENTRIES[target] not in modes):
        return ConfiguredObject(context)
    return ConfiguredObject(context, target)


def evaluates(train: ConfiguredObject) -> bool:
    """Returns whether training evaluates anything; if not, T5X ignores the eval period."""
    return any(train.value(f"{kind}_dataset_cfg") is not None for kind in ("train_eval", "infer_eval"))


def save_config(context: Context) -> ConfiguredObject:
    """Returns how a training run saves checkpoints, if it does so with T5X's own class."""
    return ConfiguredObject(context, *context.remembered(_save_config))


def _save_config(context: Context) -> tuple[str, str]:
    checkpoint = run_function(context, Mode.TRAIN).built("checkpoint_cfg", _CHECKPOINT)
    save = checkpoint.built("save", "t5x.utils.SaveCheckpointConfig")
    return save.target, save.scope


def restore_config(context: Context) -> ConfiguredObject:
    """Returns how the run restores its initial checkpoint, if it does so with T5X's own class."""
    return ConfiguredObject(context, *context.remembered(_restore_config))


def _restore_config(context: Context) -> tuple[str, str]:
    run = run_function(context)
    if context.program.mode is Mode.TRAIN:
        restore = run.built("checkpoint_cfg", _CHECKPOINT).built("restore", _RESTORE)
    else:
        restore = run.built("restore_checkpoint_cfg", _RESTORE)
    return restore.target, restore.scope


def initial_step(context: Context) -> tuple[int, ParameterValue] | None:
    """Returns the step that the run begins at and the path that names it.

    Returns None if the path names no step, or if transformations of the state may change the step.
    """
    restore = restore_config(context)
    path = restore.parameter("path", str)
    step = re.search(r"(?:checkpoint_|model\.ckpt-)(\d+)/?$", path.value) if path is not None else None
    if path is None or step is None or restore.value("assignment_map") is not None:
        return None
    return None if restore.value("state_transformation_fns", ()) not in ((), []) else (int(step[1]), path)


def start_step(context: Context) -> int | None:
    """Returns the step that the run begins at: 0 if nothing is restored, None if the text does not show it."""
    initial = initial_step(context)
    if initial is not None:
        return initial[0]
    return None if restore_config(context).value("path") else 0


def folder_of_step(path: str) -> str:
    """Returns the folder that T5X restores by orbax: it takes the step from the path's name, and makes a name of it."""
    return re.sub(r"(?<=/checkpoint_)0+(?=\d+/*$)", "", path)


def absent_checkpoint(context: Context) -> tuple[ParameterValue, str, tuple[int, ...]] | None:
    """Returns the initial checkpoint's path if it is certainly missing, its folder, and the steps next to it.

    This is only known for one of the user's buckets, or a local folder that has other checkpoints. Otherwise the
    job's machine may have it.
    """
    restore = restore_config(context)
    path = restore.parameter("path", str)
    if path is None or not path.value:
        return None
    if context.program.mode is not Mode.INFER and restore.value("mode", "latest") != "specific":
        return None
    address = path.value.rstrip("/")
    if run_function(context).value("use_orbax", True) is True:
        address = folder_of_step(address)
    local = _on_disk(context, address)
    if local is None or local.exists() or Path(f"{local}.index").exists():
        return None
    try:
        names = [path.name for path in local.parent.iterdir()]
    except OSError:
        names = []
    beside = tuple(sorted(int(m[1]) for name in names if (m := re.fullmatch(r"checkpoint_(\d+)", name))))
    return (path, address, beside) if beside or bucket_and_name(address) is not None else None


def _on_disk(context: Context, address: str) -> Path | None:
    """Returns the location of the path on this machine; None if it is in a bucket that the user did not provide."""
    spec, found = context.program.spec, bucket_and_name(address)
    if found is None:
        return Path(address) if address.startswith("/") else None
    if spec.settings.gcs_root is None or spec.settings.gcs == "off" or spec.settings.standins is StandInPolicy.ALL:
        return None
    bucket = Path(os.path.abspath(os.path.join(spec.cwd, spec.settings.gcs_root)), found[0])
    return bucket / found[1] if bucket.is_dir() else None
