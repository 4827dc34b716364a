"""CKP14 and CKP23: more checkpoints than a disk holds, and none at all."""

from __future__ import annotations

import math
from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.configured import run_function, save_config, start_step
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity

_MANY = 50
_HEAD = examples.head("pretrain", "from t5x import utils")


CKP14 = Mistake(
    "CKP14",
    "EveryCheckpointKept",
    "many checkpoints, all of them kept",
    severity=Severity.NOTE,
    why=(
        f"`keep` is None unless something sets it: every checkpoint stays. A note from more than {_MANY} on; each "
        "holds the parameters and the optimizer's state."
    ),
    bad=Example(_HEAD + "TRAIN_STEPS = 1_000_000\n", at="TRAIN_STEPS"),
    good=Example(_HEAD + "TRAIN_STEPS = 1_000_000\nutils.SaveCheckpointConfig.keep = 5\n"),
)


@finds(CKP14)
def every_checkpoint_kept(context: Context) -> Iterator[Found]:
    """Finds many checkpoints that are never deleted, at the user's statement that is closest to the cause."""
    train, save = run_function(context, Mode.TRAIN), save_config(context)
    if not save or save.value("keep") is not None:
        return
    relative = train.parameter("relative_steps")
    is_relative = relative is not None and bool(relative.value)
    total = relative if is_relative else train.parameter("total_steps")
    period = save.parameter("period")
    if total is None or period is None or not isinstance(total.value, int) or not isinstance(period.value, int):
        return
    start = 0 if is_relative else start_step(context)
    if start is None:
        return
    steps = total.value - start
    given = (save.parameter("keep"), period, total)
    own = next((g for g in given if g is not None and not context.in_t5x(g.at.location)), None)
    if own is None or period.value <= 0 or math.ceil(steps / period.value) <= _MANY:
        return
    yield Found(
        f"{math.ceil(steps / period.value)} checkpoints would be written, one every {period.value} of {steps} "
        "steps, and all of them kept",
        own.at,
        f"keep the last few ({period.sibling('keep')} = 5), or save less often",
    )


CKP23 = Mistake(
    "CKP23",
    "NothingSaved",
    "no checkpoint is saved",
    why=(
        "With `period = 0` or None T5X trains to the end, succeeds, and leaves no checkpoint behind, although a "
        "SaveCheckpointConfig is bound. A run that is to keep nothing says so: `utils.CheckpointConfig.save = None`."
    ),
    later="Evaluation and inference, which begin with the checkpoint, cannot be tried here either.",
    bad=training("utils.SaveCheckpointConfig.period = 0", at="utils.SaveCheckpointConfig.period = 0"),
    good=training("utils.SaveCheckpointConfig.period = 1000"),
)


@finds(CKP23)
def nothing_saved(context: Context) -> Iterator[Found]:
    """Finds a config for saving checkpoints that saves none."""
    save = save_config(context)
    period = save.parameter("period")
    if period is None or save.value("checkpoint_steps"):
        return
    if period.value is None or (isinstance(period.value, int) and period.value == 0):
        yield Found(
            f"{period.at} = {period.value}: no checkpoint is saved, and nothing is left of the run",
            period.at,
            f"bind {period.at} to the steps between two checkpoints, or utils.CheckpointConfig.save = None "
            "if none is wanted",
        )
