"""MSH12, CKP01 and CKP02: periods and steps that do not fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from t5x_harness.lint.program import Binding, MacroBinding
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.values import Reference
from t5x_harness.spec import Finding

_TRAIN = "__main__.train"
_CHECKPOINT = "t5x.utils.CheckpointConfig"
_SAVE = "t5x.utils.SaveCheckpointConfig"
_RESTORE = "t5x.utils.RestoreCheckpointConfig"
_STEP_IN_PATH = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/?$")
_HEAD = """\
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/finetune.gin'
"""

_Given = tuple[Any, Binding | MacroBinding]


def _checkpoint_setting(context: Context, part: str, target: str, param: str) -> _Given | None:
    """A parameter of the save or restore config that the train function is given; None if it is none of T5X's."""
    config = context.literal(_TRAIN, "checkpoint_cfg")
    if config is None or not isinstance(config[0], Reference) or config[0].target != _CHECKPOINT:
        return None
    inner = context.literal(_CHECKPOINT, part, config[0].scope)
    if inner is None or not isinstance(inner[0], Reference) or inner[0].target != target:
        return None
    return context.literal(target, param, inner[0].scope or config[0].scope)


class Periods(Rule):
    """Checkpoint, evaluation and garbage collection have to fall together."""

    code = "MSH12"
    title = "periods that are no multiples of the smallest one"
    why = (
        "T5X trains in rounds of the smallest period and refuses others that are no multiples of it, but only after it "
        "restored the checkpoint."
    )
    bad = Example(
        _HEAD + "utils.SaveCheckpointConfig.period = 5000\ntrain_script.train.eval_period = 1200\n",
        at="utils.SaveCheckpointConfig.period",
    )
    good = Example(_HEAD + "utils.SaveCheckpointConfig.period = 5000\ntrain_script.train.eval_period = 1000\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each period that is no multiple."""
        given = {
            "eval period": context.literal(_TRAIN, "eval_period"),
            "checkpoint period": _checkpoint_setting(context, "save", _SAVE, "period"),
            "gc period": context.literal(_TRAIN, "gc_period"),
        }
        periods = {name: g for name, g in given.items() if g and isinstance(g[0], int) and g[0] > 0}
        if not periods:
            return
        least_name, (least, least_at) = min(periods.items(), key=lambda item: item[1][0])
        for name, (period, at) in periods.items():
            if period % least:
                below = period - period % least
                yield self.finding(
                    f"the {name} {period} ({at}) is no multiple of the {least_name} {least} ({least_at}, "
                    f"{least_at.location})",
                    at,
                    f"make it a multiple of {least}, such as {below} or {below + least}",
                )


def _steps(context: Context) -> tuple[int, Binding | MacroBinding, int, str] | None:
    """Total steps, the statement that gives them, the checkpoint's step and its path; None where that is not so."""
    total = context.literal(_TRAIN, "total_steps")
    relative = context.literal(_TRAIN, "relative_steps")
    path = _checkpoint_setting(context, "restore", _RESTORE, "path")
    partial = _checkpoint_setting(context, "restore", _RESTORE, "assignment_map")
    if total is None or path is None or not isinstance(total[0], int) or not isinstance(path[0], str):
        return None
    if (relative is not None and relative[0]) or (partial is not None and partial[0] is not None):
        return None
    match = _STEP_IN_PATH.search(path[0])
    return (total[0], total[1], int(match[1]), path[0]) if match else None


class StepsBelowCheckpoint(Rule):
    """Fewer steps in all than the checkpoint has already done."""

    code = "CKP01"
    title = "fewer total steps than the checkpoint's step"
    why = (
        "TRAIN_STEPS counts from the very first step of pretraining. T5X restores the whole checkpoint before it stops "
        "with `Unexpected total_steps … < checkpoint step`."
    )
    bad = Example(
        _HEAD + "TRAIN_STEPS = 20_000\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_1000000'\n", at="TRAIN_STEPS"
    )
    good = Example(_HEAD + "TRAIN_STEPS = 1_020_000\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_1000000'\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding if so."""
        found = _steps(context)
        if found is not None and found[0] < found[2]:
            total, at, step, path = found
            yield self.finding(
                f"{at} = {total} is below step {step} of the checkpoint {path}",
                at,
                f"count the checkpoint's steps too: {at} = {step + total:_} trains {total} more",
            )


class NoStepsLeft(Rule):
    """Exactly as many steps as the checkpoint has done."""

    code = "CKP02"
    title = "no step left to train"
    why = "The job succeeds within minutes, having trained nothing; T5X only logs a warning."
    bad = Example(
        _HEAD + "TRAIN_STEPS = 1_000_000\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_1000000'\n",
        at="TRAIN_STEPS",
    )
    good = Example(_HEAD + "TRAIN_STEPS = 1_020_000\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_1000000'\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding if so."""
        found = _steps(context)
        if found is not None and found[0] == found[2]:
            total, at, step, path = found
            yield self.finding(
                f"{at} = {total} is the step of the checkpoint {path}: nothing would be trained",
                at,
                f"add the steps to train: {at} = {step:_} + N, written as one number",
            )
