"""CKP05 and CKP19: paths and modes of restoring that do not fit each other or the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.examples import restored_from, training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.gin.values import Reference, format_value
from t5x_harness.lint.configured import ConfiguredObject, restore_config, run_function, save_config
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode
from t5x_harness.system.misspelling import closest

_MODES = ("specific", "latest", "all")
_DEFAULT_MANAGER = "t5x.checkpoints.OrbaxCheckpointManagerInterface"
_HEAD = examples.head("finetune", "from t5x import utils")


def _uses_orbax(context: Context) -> bool:
    return run_function(context).value("use_orbax", True) is True


_WRITTEN = {"model/checkpoint_1000": examples.trained()}

CKP05 = Mistake(
    "CKP05",
    "checkpoint path that does not fit the restore mode",
    why=(
        "Mode 'specific' wants the folder of one checkpoint, `.../checkpoint_1000`: given the folder of the run T5X "
        "stops with `Found improperly formatted checkpoint directory`. Modes 'latest' (the default) and 'all' want the "
        "folder of the run: given that of one checkpoint they find none in it, and training silently starts from "
        "scratch (or, in the format before Orbax, ends with a UnicodeDecodeError)."
    ),
    bad=training(*restored_from("model"), checkpoints=_WRITTEN, at="utils.RestoreCheckpointConfig.path"),
    good=training(*restored_from("model/checkpoint_1000"), checkpoints=_WRITTEN),
)


@finds(CKP05)
def path_against_mode(context: Context) -> Iterator[Found]:
    """Finds the folder of a run where one checkpoint is meant, or the reverse."""
    restore = restore_config(context)
    path = restore.parameter("path")
    if path is None or not isinstance(path.value, str) or not path.value:
        return
    infers = context.program.mode is Mode.INFER
    mode = "specific" if infers else restore.value("mode", "latest")
    name = path.value.removesuffix("/").rpartition("/")[2]
    is_checkpoint = re.fullmatch(r"checkpoint_\d+", name) is not None
    shown = f"{path.at} = {format_value(path.value, limit=300)}"
    if mode == "specific" and not is_checkpoint and not _may_be_tensorflow(name) and _uses_orbax(context):
        folder = path.value.removesuffix("/")
        meant = _checkpoint_meant(name)
        right = f"{folder.removesuffix(name)}{meant}" if meant else f"{folder}/checkpoint_STEP"
        wants = "inference, which takes its path as it is in every mode," if infers else "mode 'specific'"
        yield Found(
            f"{shown} is not a checkpoint: {wants} needs a folder called checkpoint_STEP",
            path.at,
            f"did you mean {right!r}?" if meant else f"name the checkpoint too: {right!r}",
        )
    elif mode in ("latest", "all") and is_checkpoint:
        result = "training would start from scratch" if context.program.mode is Mode.TRAIN else "nothing is evaluated"
        yield Found(
            f"{shown} is one checkpoint, and mode {mode!r} looks for checkpoints inside it: {result}",
            path.at,
            f"bind {path.sibling('mode')} = 'specific', or leave /{name} out",
        )


def _checkpoint_meant(name: str) -> str | None:
    """Returns the checkpoint that the last part of a path surely means: ``checkpoint_10`` for ``checkpont_10``."""
    match = re.fullmatch(r"([A-Za-z]+)[_-]?(\d+)", name)
    near = closest(match[1].lower(), ("checkpoint",)) if match is not None else None
    if match is None or (near is None and match[1].lower() != "checkpoint"):
        return None
    return f"checkpoint_{match[2]}"


def _may_be_tensorflow(name: str) -> bool:
    """Returns whether a path may end in the prefix of a TensorFlow checkpoint: ``model.ckpt-1000000``."""
    return "ckpt" in name


CKP19 = Mistake(
    "CKP19",
    "restore settings that T5X refuses",
    why=(
        "Training restores one checkpoint: mode 'all' is for evaluation. Saving and restoring must name the same "
        "`checkpoint_manager_cls`. T5X finds out when the datasets are built and the job is paid for."
    ),
    later=(
        "Evaluation and inference with orbax take one path, and of a list, be it of one, only `expected str, bytes or"
        " os.PathLike object, not list` is said."
    ),
    bad=training(
        "utils.RestoreCheckpointConfig.path = 'gs://b/a'",
        "utils.RestoreCheckpointConfig.mode = 'all'",
        at="utils.RestoreCheckpointConfig.mode",
    ),
    good=training("utils.RestoreCheckpointConfig.path = 'gs://b/a'"),
)


@finds(CKP19)
def restore_mode(context: Context) -> Iterator[Found]:
    """Finds a restore mode that the run does not have, and checkpoint managers of two kinds."""
    restore = restore_config(context)
    mode = restore.parameter("mode")
    if mode is not None and isinstance(mode.value, str):
        if mode.value not in _MODES:
            near = closest(mode.value, _MODES)
            yield Found(
                f"there is no restore mode {mode.value!r}",
                mode.at,
                f"write {mode.at} = {near!r}" if near else f"use {', '.join(_MODES)}",
            )
        elif mode.value == "all" and context.program.mode is Mode.TRAIN:
            yield Found("restore mode 'all' is not supported in training", mode.at, f"write {mode.at} = 'specific'")
    yield from _managers(context, restore)


def _managers(context: Context, restore: ConfiguredObject) -> Iterator[Found]:
    save = save_config(context)
    if not save or not isinstance(restore.value("path"), str) or not _uses_orbax(context):
        return
    names = [_manager(part) for part in (save, restore)]
    given = save.parameter("checkpoint_manager_cls") or restore.parameter("checkpoint_manager_cls")
    if given is not None and None not in names and names[0] != names[1]:
        yield Found(
            f"checkpoints are saved with {names[0]} and restored with {names[1]}",
            given.at,
            "bind checkpoint_manager_cls to the same class in SaveCheckpointConfig and RestoreCheckpointConfig",
        )


def _manager(part: ConfiguredObject) -> str | None:
    """Returns the full name of the manager's class; None if it is not known."""
    given = part.parameter("checkpoint_manager_cls")
    if given is None:
        return _DEFAULT_MANAGER
    return given.value.target if isinstance(given.value, Reference) and not given.value.scope else None
