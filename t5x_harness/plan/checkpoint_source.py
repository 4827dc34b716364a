"""Finds the checkpoint that a run starts from, chosen the way T5X chooses it, and the reason for the choice.

A training run resumes from the latest checkpoint in its own MODEL_DIR if there is one. Otherwise it looks at its
RestoreCheckpointConfig, and without a path there it starts from scratch. Evaluation and inference only look at the
RestoreCheckpointConfig.
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epath

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.buckets.emulated import on_disk
from t5x_harness.buckets.reach import is_not_asked
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.lint.rule import folder_of_step
from t5x_harness.plan.stored_tree import step_of
from t5x_harness.resolve.output_folder import model_dir
from t5x_harness.spec import Mode, Severity, StandInPolicy

UNSET_CHECKPOINT = "checkpoint_given_when_the_job_starts"
"""The last part of the path that replaces a required checkpoint path; it does not exist anywhere."""

_PREFIX = "checkpoint_"
_MAKE_SURE = "make sure that the path exists where the job runs"


@dataclasses.dataclass(frozen=True)
class CheckpointProblem:
    """The reason why the checkpoint cannot be the one that the config means."""

    code: str
    message: str
    fix: str
    severity: Severity = Severity.ERROR


@dataclasses.dataclass(frozen=True)
class StartPoint:
    """The point from which a run starts.

    Attributes:
      key: the binding that holds the path.
      path: the path in the config: a checkpoint, or a folder of several; None if the run starts from scratch.
      mode: T5X's restore mode: ``specific``, ``latest`` or ``all``.
      step: the step that the path names, or the latest one in the folder; None if unknown.
      checkpoint: the checkpoint to read; None if there is none, or if it cannot be known here.
      reachable: whether the checkpoint can be read here.
      why: the reason for this choice, in words.
      others: the number of further checkpoints to evaluate.
      resumes: whether it is the run's own checkpoint, in MODEL_DIR.
      restore: T5X's RestoreCheckpointConfig; None if it does not decide the start.
      problem: the problem with the checkpoint; None if there is none.
    """

    key: BindingKey | None = None
    path: str | None = None
    mode: str = "specific"
    step: int | None = None
    checkpoint: str | None = None
    reachable: bool = False
    why: str = "the config names no checkpoint"
    others: int = 0
    resumes: bool = False
    restore: Any = None
    problem: CheckpointProblem | None = None

    @property
    def is_refused(self) -> bool:
        """Whether nothing can be restored from the checkpoint."""
        return self.problem is not None and self.problem.severity is Severity.ERROR

    @property
    def transforms(self) -> bool:
        """Whether the config renames or drops parts of the checkpoint while restoring."""
        restore = self.restore
        return restore is not None and bool(restore.state_transformation_fns or restore.fallback_to_scratch)


def find_start(config: GinConfig) -> StartPoint:
    """Returns the job's start: the checkpoint in MODEL_DIR, the one that the config names, or from scratch."""
    folder = model_dir(config)
    steps = checkpoint_steps(folder.path) if folder else []
    if folder is None or not steps:
        return find_initial(config)
    return StartPoint(
        key=folder.key,
        path=folder.path,
        mode="latest",
        step=steps[-1],
        checkpoint=_checkpoint_in(folder.path, steps[-1]),
        reachable=True,
        why=f"it is the latest in {folder.key.short}, where T5X looks first",
        resumes=True,
    )


def find_initial(config: GinConfig) -> StartPoint:
    """Returns the job's start in a new MODEL_DIR, by the config's RestoreCheckpointConfig."""
    restore = _restore_config(config)
    if restore is None or restore.path is None or restore.path in ([], ()):
        return StartPoint()
    paths = _paths(restore)
    # Inference passes its path to the restore unchanged, in every mode.
    mode = "specific" if config.mode is Mode.INFER else restore.mode
    start = StartPoint(config.owner(config.restore_key("path")), path=paths[0], mode=mode, restore=restore)
    if mode == "specific":
        start = _specific(start, paths, uses_orbax(config), config.mode)
    else:
        start = _latest(start, paths, config.mode)
    generated = config.program.spec.settings.standins is StandInPolicy.ALL and is_remote(paths[0])
    if generated and start.problem is not None and start.problem.code == "CKP04":
        return dataclasses.replace(start, problem=None)  # stand-ins replace the bucket, which is not read
    return start


def restored_paths(config: GinConfig) -> Sequence[str]:
    """Returns the paths that the config names to be restored: checkpoints, or folders of checkpoints."""
    restore = _restore_config(config)
    return [] if restore is None or restore.path is None else _paths(restore)


def uses_orbax(config: GinConfig) -> bool:
    """Tells whether the run restores and saves with orbax, as T5X does unless the config says otherwise."""
    key = config.owner_of("use_orbax")
    return bool(config.value(key)) if config.is_bound(key) else True  # like T5X, tests only whether the value is true


def checkpoint_steps(folder: str) -> list[int]:
    """Returns the steps of the checkpoints in a folder, ascending; empty if it does not exist or is out of reach."""
    if is_not_asked(folder):
        return []
    try:
        names = [path.name for path in Path(on_disk(folder)).iterdir()]
    except OSError:
        return []
    return sorted(int(m.group(1)) for n in names if (m := re.fullmatch(r"checkpoint_(\d+)", n)))


def _checkpoint_in(folder: str, step: int) -> str:
    return os.path.join(folder, f"{_PREFIX}{step}")


def _restore_config(config: GinConfig) -> Any:
    if config.mode is Mode.TRAIN:
        return getattr(config.build("checkpoint_cfg"), "restore", None)
    return config.build("restore_checkpoint_cfg")


def _paths(restore: Any) -> Sequence[str]:
    return [restore.path] if isinstance(restore.path, str) else [str(path) for path in restore.path]


def _specific(start: StartPoint, paths: Sequence[str], orbax: bool, mode: Mode) -> StartPoint:
    """Completes the start from one checkpoint, which is named by its path."""
    paths = [folder_of_step(path) for path in paths] if orbax else paths
    path = paths[0]
    start = dataclasses.replace(
        start, step=step_of(path), checkpoint=path, why="the config names it", others=len(paths) - 1
    )
    if os.path.basename(path) == UNSET_CHECKPOINT:
        return dataclasses.replace(start, checkpoint=None, why="the job is given it when it starts")
    if is_not_asked(path):
        return start
    if not path:
        message = (
            "the path of the checkpoint is empty: T5X restores nothing and fails with `Cannot restore multiple "
            "checkpoints.`"
        )
        problem = CheckpointProblem("CKP04", message, "write [] to start from scratch")
        return dataclasses.replace(start, problem=problem)
    asked = [each for each in paths if not is_not_asked(each)]
    ours = (each for each in asked if not epath.Path(on_disk(f"{each}.index")).exists())  # not TensorFlow's
    wrong = next(filter(None, (_no_checkpoint(each, orbax, mode) or _missing(each, orbax) for each in ours)), None)
    return dataclasses.replace(start, reachable=wrong is None, problem=wrong)


def _missing(path: str, orbax: bool) -> CheckpointProblem | None:
    """Finds CKP04 and CKP08: a path with nothing there, no checkpoint, or a checkpoint that this reader cannot read."""
    folder = epath.Path(on_disk(path))
    if folder.exists():
        if not orbax and (folder / "state" / "_METADATA").exists():
            message = f"{path} was written by orbax, and with use_orbax = False T5X reads only its older layout"
            return CheckpointProblem("CKP08", message, "drop use_orbax = False")
        if (folder / "state").is_dir() or (folder / "checkpoint").exists() or folder.is_file():
            return None
        return CheckpointProblem(
            "CKP04",
            f"{path} holds no checkpoint: there is neither a folder state (orbax) nor a file checkpoint (T5X's older "
            "layout) in it",
            "name a checkpoint that was written to its end",
        )
    if near := checkpoint_steps(os.path.dirname(path.rstrip("/"))):
        listed = ", ".join(f"{_PREFIX}{n}" for n in near[-5:])
        return CheckpointProblem("CKP04", f"there is no {path}; beside it are {listed}", "correct the step")
    if is_remote(path):
        message = f"there is no {path}, and what a bucket of yours lacks is missing"
        return CheckpointProblem("CKP04", message, "correct the path, or put the checkpoint into the bucket")
    message = f"{path} does not exist on this machine, so a stand-in takes its place here"
    return CheckpointProblem("CKP04", message, _MAKE_SURE, Severity.WARNING)


def _no_checkpoint(path: str, orbax: bool, mode: Mode) -> CheckpointProblem | None:
    """Finds CKP05: a path whose last part is not a checkpoint's name, from which T5X takes the step before it looks."""
    if steps := checkpoint_steps(path):
        infers = mode is Mode.INFER
        wants = "inference, which takes its path as it is in every mode," if infers else "mode 'specific'"
        message = f"{path} is the folder of a run, and {wants} needs one checkpoint"
        return CheckpointProblem("CKP05", message, f"use {_checkpoint_in(path, steps[-1])}")
    name = os.path.basename(path.removesuffix("/"))
    if not orbax or (_PREFIX[:-1] in name and name.replace(_PREFIX, "").isdecimal()):
        return None
    message = f"{path} does not end in checkpoint_ and a step, from which T5X takes the step to restore"
    return CheckpointProblem("CKP05", message, "name one checkpoint, such as checkpoint_1000000")


def _latest(start: StartPoint, paths: Sequence[str], mode: Mode) -> StartPoint:
    """Completes the start from the latest checkpoint, or from all checkpoints, of the first folder that has any."""
    if any(is_not_asked(path) for path in paths):
        # A checkpoint never contains checkpoints, so this is known without reading it.
        problem = _empty_folder(paths[0], start.mode, mode) if step_of(paths[0]) is not None else None
        return dataclasses.replace(start, why=f"mode '{start.mode}' looks for it in that folder", problem=problem)
    for path in paths:
        if not epath.Path(on_disk(path)).is_dir():
            return dataclasses.replace(start, path=path, problem=_no_folder(path, start.mode))
        try:
            found = _tensorflow_checkpoints(path) or [_checkpoint_in(path, step) for step in checkpoint_steps(path)]
        except UnicodeDecodeError:  # as in T5X: TensorFlow mistakes the msgpack file of T5X's older layout for its own
            problem = _one_checkpoint(path, start.mode, "stops with a UnicodeDecodeError")
            return dataclasses.replace(start, path=path, problem=problem)
        if found:
            return dataclasses.replace(
                start,
                problem=_renamed(path, found[-1]),
                path=path,
                step=step_of(found[-1]),
                checkpoint=found[-1],
                reachable=True,
                why=f"it is the latest in {path}",
                others=len(found) - 1 if start.mode == "all" else 0,
            )
    start = dataclasses.replace(start, problem=_empty_folder(paths[0], start.mode, mode))
    if mode is not Mode.TRAIN:
        return start
    return dataclasses.replace(start, path=None, why=f"there is no checkpoint in {paths[0]}")


def _renamed(folder: str, checkpoint: str) -> CheckpointProblem | None:
    """Finds CKP04: a step written with a 0 in front, which T5X lists, and then looks for without it."""
    if epath.Path(on_disk(checkpoint)).exists():
        return None
    spelt = re.compile(f"{_PREFIX}0+{step_of(checkpoint)}")
    written = next((path.name for path in Path(on_disk(folder)).iterdir() if spelt.fullmatch(path.name)), None)
    if written is None:
        return None
    message = f"T5X takes step {step_of(checkpoint)} from {written} in {folder}, and looks for {checkpoint}"
    return CheckpointProblem("CKP04", message, f"rename {written} to {os.path.basename(checkpoint)}")


def _no_folder(path: str, mode: str) -> CheckpointProblem:
    is_file = epath.Path(on_disk(path)).exists()
    above = os.path.dirname(path.rstrip("/"))
    if not is_file and (near := checkpoint_steps(above)):
        listed = ", ".join(f"{_PREFIX}{n}" for n in near[-5:])
        message = f"there is no {path}, and mode '{mode}' needs the folder of a run; beside it are {listed}"
        return CheckpointProblem("CKP04", message, f"name {above}")
    if is_file or is_remote(path):
        message = (
            f"{path} is a file, and mode '{mode}' needs the folder of a run"
            if is_file
            else f"there is no {path}, and what a bucket of yours lacks is missing: mode '{mode}' fails"
        )
        return CheckpointProblem("CKP04", message, "name the folder that holds checkpoint_N")
    message = (
        f"{path} does not exist on this machine, so a stand-in takes its place here; if it does not exist where the "
        f"job runs either, mode '{mode}' fails"
    )
    return CheckpointProblem("CKP04", message, _MAKE_SURE, Severity.WARNING)


def _empty_folder(path: str, restore_mode: str, mode: Mode) -> CheckpointProblem:
    does = "trains from scratch" if mode is Mode.TRAIN else "evaluates nothing"
    if step_of(path) is not None:
        return _one_checkpoint(path, restore_mode, f"finds none, {does} and succeeds")
    severity = Severity.WARNING if mode is Mode.TRAIN else Severity.ERROR
    fix = "name a folder with checkpoints, or drop the RestoreCheckpointConfig"
    return CheckpointProblem("CKP05", f"{path} holds no checkpoint_N: T5X {does} and succeeds", fix, severity)


def _one_checkpoint(path: str, restore_mode: str, result: str) -> CheckpointProblem:
    message = f"{path} is one checkpoint, and mode '{restore_mode}' looks for checkpoints in it: T5X {result}"
    return CheckpointProblem("CKP05", message, "set mode = 'specific', or name the folder above it")


def _tensorflow_checkpoints(folder: str) -> list[str]:
    """Returns the checkpoints of a folder that TensorFlow wrote; empty for any other folder."""
    import tensorflow as tf

    read = on_disk(folder)
    state = tf.train.get_checkpoint_state(read)
    return [path.replace(read, folder, 1) for path in state.all_model_checkpoint_paths] if state else []
