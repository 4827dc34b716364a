"""CKP04, CKP05, CKP17, CKP18, CKP19 and INF09: checkpoints that a run cannot start from, or not as the config asks."""

import re
from collections.abc import Iterator

from t5x_harness.findings.rule import FILES, FOLDER, Example, Found, Rule, restored_from, run_head, trained, training
from t5x_harness.gin.values import Reference, format_value
from t5x_harness.lint.rule import (
    ConfiguredObject,
    Context,
    ParameterValue,
    absent_checkpoint,
    restore_config,
    run_function,
    save_config,
)
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

_WRITTEN = {"model/checkpoint_1000": trained()}

CKP04 = Rule(
    "CKP04",
    "checkpoint that does not exist",
    why=(
        "T5X asserts with the path as its whole message, half a minute into the job. What a bucket of yours "
        "(`gcs_root`) lacks is missing; of a folder of this machine that is only sure where other checkpoints are in "
        "it, as the machine of the job may have another."
    ),
    later=(
        "It is a warning if there is no other checkpoint beside it either: the machine of the job may have the path, "
        "and a stand-in takes its place here."
    ),
    bad=training(
        *restored_from("model/checkpoint_1001"),
        files={**FILES, "model/checkpoint_1000/checkpoint": ""},
        at="utils.RestoreCheckpointConfig.path",
    ),
    good=training(*restored_from("model/checkpoint_1000"), checkpoints=_WRITTEN),
)


@CKP04
def missing_checkpoint(context: Context) -> Iterator[Found]:
    """Finds a checkpoint that is neither in the user's bucket nor next to other checkpoints of its run."""
    missing = absent_checkpoint(context)
    if missing is None:
        return
    path, folder, beside = missing
    if beside:
        listed = ", ".join(f"checkpoint_{step}" for step in beside[-5:])
        yield Found(f"there is no {folder}; beside it are {listed}", path.at, "correct the step")
    else:
        yield Found(
            f"there is no {folder}, and what a bucket of yours lacks is missing",
            path.at,
            "correct the path, or put the checkpoint into the bucket",
        )


def _uses_orbax(context: Context) -> bool:
    return run_function(context).value("use_orbax", True) is True


CKP05 = Rule(
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


@CKP05
def path_against_mode(context: Context) -> Iterator[Found]:
    """Finds a run's folder in place of a single checkpoint, or the reverse."""
    restore = restore_config(context)
    path = restore.parameter("path", str)
    if path is None or not path.value:
        return
    infers = context.program.mode is Mode.INFER
    mode = "specific" if infers else restore.value("mode", "latest")
    name = path.value.removesuffix("/").rpartition("/")[2]
    is_checkpoint = re.fullmatch(r"checkpoint_\d+", name) is not None
    shown = f"{path.at} = {format_value(path.value, limit=300)}"
    # The prefix of a TensorFlow checkpoint, model.ckpt-1000000, is also a path to one.
    if mode == "specific" and not is_checkpoint and "ckpt" not in name and _uses_orbax(context):
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
    """Returns the checkpoint that the last part of a path clearly means: ``checkpoint_10`` for ``checkpont_10``."""
    match = re.fullmatch(r"([A-Za-z]+)[_-]?(\d+)", name)
    near = closest(match[1].lower(), ("checkpoint",)) if match is not None else None
    if match is None or (near is None and match[1].lower() != "checkpoint"):
        return None
    return f"checkpoint_{match[2]}"


CKP19 = Rule(
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


@CKP19
def restore_mode(context: Context) -> Iterator[Found]:
    """Finds the restore mode of evaluation in training, and checkpoint managers of two kinds."""
    restore = restore_config(context)
    mode = restore.parameter("mode", str)
    if mode is not None and mode.value == "all" and context.program.mode is Mode.TRAIN:
        yield Found("restore mode 'all' is not supported in training", mode.at, f"write {mode.at} = 'specific'")
    yield from _managers(context, restore)


def _managers(context: Context, restore: ConfiguredObject) -> Iterator[Found]:
    save = save_config(context)
    if not save or not isinstance(restore.value("path"), str) or not _uses_orbax(context):
        return
    managers = [part.parameter("checkpoint_manager_cls") for part in (save, restore)]
    names = [_name_of(manager) for manager in managers]
    given = managers[0] or managers[1]
    if given is not None and None not in names and names[0] != names[1]:
        yield Found(
            f"checkpoints are saved with {names[0]} and restored with {names[1]}",
            given.at,
            "bind checkpoint_manager_cls to the same class in SaveCheckpointConfig and RestoreCheckpointConfig",
        )


def _name_of(manager: ParameterValue | None) -> str | None:
    """Returns the full name of a manager's class, which has a default; None if it is not known."""
    if manager is None:
        return "t5x.checkpoints.OrbaxCheckpointManagerInterface"
    return manager.value.target if isinstance(manager.value, Reference) and not manager.value.scope else None


_SPECIFIC = "utils.RestoreCheckpointConfig.mode = 'specific'"
_RESTORE = ("utils.RestoreCheckpointConfig.path = 'gs://bucket/model/checkpoint_1000'", _SPECIFIC)
_MAP = "utils.RestoreCheckpointConfig.assignment_map = ((r'state/param_states.*', None),)"
_FALLBACK = "utils.RestoreCheckpointConfig.fallback_to_scratch = True"


def _transformation(restore: ConfiguredObject) -> ParameterValue | None:
    """Returns the statement that transforms the restored state; None if nothing does."""
    mapped = restore.parameter("assignment_map")
    if mapped is not None and mapped.value is not None:
        return mapped
    functions = restore.parameter("state_transformation_fns")
    return functions if functions is not None and functions.value not in ((), [], None) else None


CKP17 = Rule(
    "CKP17",
    "fallback_to_scratch without what it needs",
    why=(
        "What the checkpoint lacks is only initialized where `assignment_map` or `state_transformation_fns` says which "
        "part that is, and evaluation and inference need `fallback_init_rng` as well. T5X refuses anything less, once "
        "the model is built."
    ),
    bad=training(*_RESTORE, _FALLBACK, at=_FALLBACK),
    good=training(*_RESTORE, _FALLBACK, _MAP),
)


@CKP17
def fallback_incomplete(context: Context) -> Iterator[Found]:
    """Finds ``fallback_to_scratch`` without a transformation, or without a seed."""
    run, restore = run_function(context), restore_config(context)
    fallback = restore.parameter("fallback_to_scratch")
    if fallback is None or fallback.value is not True or restore.parameter("path", str) is None:
        return
    if _transformation(restore) is None:
        yield Found(
            f"{fallback.at} = True needs assignment_map or state_transformation_fns, and neither is bound",
            fallback.at,
            f"bind {fallback.sibling('assignment_map')} to pairs of patterns, or remove fallback_to_scratch",
        )
    elif context.program.mode is not Mode.TRAIN and run.value("fallback_init_rng") is None:
        function = run.target.rpartition(".")[2]
        yield Found(
            f"{fallback.at} = True needs a seed, and {function}.fallback_init_rng is not bound",
            fallback.at,
            f"bind {function}.fallback_init_rng = 0",
        )


CKP18 = Rule(
    "CKP18",
    "restore settings that the checkpoint's layout does not take",
    why=(
        "T5X reads checkpoints of Mesh TensorFlow only whole (`Cannot initialize from a TensorFlow checkpoint using "
        "state_transformation_fns`), only by the prefix of their files, `model.ckpt-1000000`, and only in mode "
        "'specific'."
    ),
    later=(
        "A checkpoint of orbax is read under the model's names, whatever the map says: a renamed array is "
        "`NOT_FOUND`, or another array of that name is taken silently."
    ),
    bad=training(
        f"utils.RestoreCheckpointConfig.path = '{FOLDER}/model.ckpt-1000'",
        _SPECIFIC,
        _MAP,
        files={**FILES, "model.ckpt-1000.index": ""},
        at="utils.RestoreCheckpointConfig.assignment_map",
    ),
    good=training(*restored_from("model/checkpoint_1000"), checkpoints=_WRITTEN),
)


@CKP18
def tensor_flow_checkpoint(context: Context) -> Iterator[Found]:
    """Finds a checkpoint of Mesh TensorFlow that is used in a way that T5X does not support."""
    restore = restore_config(context)
    path = restore.parameter("path", str)
    match = re.search(r"model\.ckpt-\d+(\.index|\.meta|\.data-[\w-]+)?$", path.value) if path is not None else None
    if path is None or match is None:
        return
    shown = format_value(path.value)
    if match[1]:
        yield Found(
            f"{path.at} = {shown} is one file of a TensorFlow checkpoint",
            path.at,
            f"leave {match[1]} out: {format_value(path.value.removesuffix(match[1]))}",
        )
    changed = _transformation(restore)
    if changed is not None:
        yield Found(
            f"{changed.binding} is bound, and {shown} ({path.at}) is a TensorFlow checkpoint, which is only "
            "restored as it is",
            changed.at,
            "use the same model's T5X checkpoint (checkpoint_STEP), or remove the binding",
        )
    mode = restore.parameter("mode")
    if context.program.mode is not Mode.INFER and (mode is None or mode.value in ("latest", "all")):
        value = "latest" if mode is None else mode.value
        yield Found(
            f"{path.at} = {shown} is not a folder, and restore mode {value!r} needs one",
            path.at,
            f"bind {path.sibling('mode')} = 'specific'",
        )


_SCORING = run_head("infer", "import __main__ as infer_script", "from t5x import utils")
_SCORING += "infer_script.infer.mode = 'score'\n"


@Rule(
    "INF09",
    "scores from parameters rounded to bfloat16",
    severity=Severity.NOTE,
    why=(
        "T5X's infer.gin restores parameters as bfloat16, which keeps two to three decimal digits of each, while "
        "training and its evaluation use float32: the same model gives other scores."
    ),
    bad=Example(_SCORING, at="infer_script.infer.mode"),
    good=Example(_SCORING + "utils.RestoreCheckpointConfig.dtype = 'float32'\n"),
)
def scores_in_bfloat16(context: Context) -> Iterator[Found]:
    """Finds scores that are computed with rounded parameters."""
    mode = run_function(context, Mode.INFER).parameter("mode")
    dtype = restore_config(context).parameter("dtype")
    if mode is None or dtype is None or mode.value not in ("score", "predict_with_aux") or dtype.value != "bfloat16":
        return
    yield Found(
        f"mode {mode.value!r} gives scores of parameters that are rounded to bfloat16 ({dtype.at.location})",
        mode.at if context.in_t5x(dtype.at.location) else dtype.at,
        f"for the scores of training bind {dtype.binding} = 'float32'",
    )
