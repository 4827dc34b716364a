"""CKP17 and CKP18: restoring a part of a checkpoint, and TensorFlow's checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.examples import restored_from, training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.gin.values import format_value
from t5x_harness.lint.configured import ConfiguredObject, ParameterValue, restore_config, run_function
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode

_SPECIFIC = "utils.RestoreCheckpointConfig.mode = 'specific'"
_RESTORE = ("utils.RestoreCheckpointConfig.path = 'gs://bucket/model/checkpoint_1000'", _SPECIFIC)
_MAP = "utils.RestoreCheckpointConfig.assignment_map = ((r'state/param_states.*', None),)"
_FALLBACK = "utils.RestoreCheckpointConfig.fallback_to_scratch = True"


def _transformation(restore: ConfiguredObject) -> ParameterValue | None:
    """Returns what changes the state on its way from the checkpoint; None if nothing does."""
    mapped = restore.parameter("assignment_map")
    if mapped is not None and mapped.value is not None:
        return mapped
    functions = restore.parameter("state_transformation_fns")
    return functions if functions is not None and functions.value not in ((), [], None) else None


CKP17 = Mistake(
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


@finds(CKP17)
def fallback_incomplete(context: Context) -> Iterator[Found]:
    """Finds ``fallback_to_scratch`` without a transformation, or without a seed."""
    run, restore = run_function(context), restore_config(context)
    fallback = restore.parameter("fallback_to_scratch")
    if fallback is None or fallback.value is not True:
        return
    if not isinstance(restore.value("path"), str):
        return  # nothing is restored
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


CKP18 = Mistake(
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
        f"utils.RestoreCheckpointConfig.path = '{examples.FOLDER}/model.ckpt-1000'",
        _SPECIFIC,
        _MAP,
        files={**examples.FILES, "model.ckpt-1000.index": ""},
        at="utils.RestoreCheckpointConfig.assignment_map",
    ),
    good=training(*restored_from("model/checkpoint_1000"), checkpoints={"model/checkpoint_1000": examples.trained()}),
)


@finds(CKP18)
def tensor_flow_checkpoint(context: Context) -> Iterator[Found]:
    """Finds a checkpoint of Mesh TensorFlow that is used in a way that T5X does not support."""
    restore = restore_config(context)
    path = restore.parameter("path")
    if path is None or not isinstance(path.value, str):
        return
    match = re.search(r"model\.ckpt-\d+(\.index|\.meta|\.data-[\w-]+)?$", path.value)
    if match is None:
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
