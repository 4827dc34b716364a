"""CKP14: more checkpoints than a disk holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.settings import initial_step, run_part, save_part
from t5x_harness.spec import Finding, Mode, Severity

_MANY = 50
_HEAD = """\
from __gin__ import dynamic_registration
from t5x import utils
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
"""


class EveryCheckpointKept(Rule):
    """Many checkpoints, and none of them is ever deleted."""

    code = "CKP14"
    severity = Severity.NOTE
    title = "many checkpoints, all of them kept"
    why = (
        f"`keep` is None unless something sets it: every checkpoint stays. A note from more than {_MANY} on; each "
        "holds the parameters and the optimizer's state."
    )
    bad = Example(_HEAD + "TRAIN_STEPS = 1_000_000\n", at="TRAIN_STEPS")
    good = Example(_HEAD + "TRAIN_STEPS = 1_000_000\nutils.SaveCheckpointConfig.keep = 5\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a note, at the user's own statement that comes nearest to the cause."""
        train, save = run_part(context, Mode.TRAIN), save_part(context)
        if train is None or save is None or save.value("keep") is not None:
            return
        relative = train.given("relative_steps")
        is_relative = relative is not None and bool(relative.value)
        total = relative if is_relative else train.given("total_steps")
        period = save.given("period")
        if total is None or period is None or not isinstance(total.value, int) or not isinstance(period.value, int):
            return
        initial = None if is_relative else initial_step(context)
        steps = total.value - (initial[0] if initial is not None else 0)
        given = (save.given("keep"), period, total)
        own = next((g for g in given if g is not None and not context.in_t5x(g.at.location)), None)
        if own is None or period.value <= 0 or math.ceil(steps / period.value) <= _MANY:
            return
        yield self.finding(
            f"{math.ceil(steps / period.value)} checkpoints would be written, one every {period.value} of {steps} "
            "steps, and all of them kept",
            own.at,
            f"keep the last few ({period.beside('keep')} = 5), or save less often",
        )
