"""CKP20 and INF09: the number format that checkpoints are saved and restored in."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.configured import restore_config, run_function, save_config
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

_SAVED = ("float32", "bfloat16")
_RESTORED = ("float32", "float16", "bfloat16")
_SHORT = {"fp32": "float32", "f32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16"}
_TRAIN = examples.head("pretrain", "from t5x import utils")
_INFER = (
    examples.head("infer", "import __main__ as infer_script", "from t5x import utils")
    + "infer_script.infer.mode = 'score'\n"
)


CKP20 = Mistake(
    "CKP20",
    "CheckpointDtype",
    "checkpoint dtype that T5X does not know",
    why="T5X takes None, 'float32' and 'bfloat16', and for restoring 'float16' too; it refuses all other names.",
    bad=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'fp32'\n", at="utils.SaveCheckpointConfig.dtype"),
    good=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'float32'\n"),
)


@finds(CKP20)
def checkpoint_dtype(context: Context) -> Iterator[Found]:
    """Finds a dtype that T5X's checkpoint configs refuse, for saving and for restoring."""
    for part, known in ((save_config(context), _SAVED), (restore_config(context), _RESTORED)):
        given = part.parameter("dtype")
        if given is None or not isinstance(given.value, str) or given.value in known:
            continue
        near = _SHORT.get(given.value.lower()) or closest(given.value, known)
        yield Found(
            f"{given.at} = {given.value!r} is none of {', '.join(map(repr, known))} and None",
            given.at,
            f"write {given.at} = {near!r}" if near in known else f"use one of {', '.join(map(repr, known))}",
        )


INF09 = Mistake(
    "INF09",
    "ScoresInBfloat16",
    "scores from parameters rounded to bfloat16",
    severity=Severity.NOTE,
    why=(
        "T5X's infer.gin restores parameters as bfloat16, which keeps two to three decimal digits of each, while "
        "training and its evaluation use float32: the same model gives other scores."
    ),
    bad=Example(_INFER, at="infer_script.infer.mode"),
    good=Example(_INFER + "utils.RestoreCheckpointConfig.dtype = 'float32'\n"),
)


@finds(INF09)
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
