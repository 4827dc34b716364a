"""MSH12, CKP01, CKP02, CKP23 and GIN09: steps and periods, every value computed and the checkpoint's step known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.gin.config import BindingKey
from t5x_harness.plan.rule import PlanRule
from t5x_harness.spec import Finding, Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

_FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
    "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
)


class Periods(PlanRule):
    """Checkpoint, evaluation and garbage collection have to fall together."""

    code = "MSH12"
    title = "periods that are not multiples of the smallest one"
    why = "T5X trains in rounds of the smallest period and refuses others, but only after it restored the checkpoint."
    bad = training(
        "utils.SaveCheckpointConfig.period = 5000",
        "train_script.train.eval_period = 1200",
        at="utils.SaveCheckpointConfig.period = 5000",
    )
    good = training("utils.SaveCheckpointConfig.period = 5000", "train_script.train.eval_period = 1000")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for each period that is not a multiple."""
        config = plan.config
        if config.mode is not Mode.TRAIN:
            return
        keys = {
            "eval_period": BindingKey("", config.entry, "eval_period"),
            "checkpoint period": config.find("period", "SaveCheckpointConfig"),
            "gc_period": BindingKey("", config.entry, "gc_period"),
        }
        owners = {name: config.owner(key) for name, key in keys.items() if key}
        values = {name: config.value(owner) for name, owner in owners.items()}
        periods = {name: n for name, n in values.items() if isinstance(n, int) and n > 0}
        least = min(periods.values(), default=1)
        for name, period in periods.items():
            if period % least:
                other = next(n for n, value in periods.items() if value == least)
                yield self.finding(
                    f"{name} is {period} and {other} is {least}: the smallest period must divide the others, and T5X "
                    "checks it only after restoring",
                    owners[name],
                    f"set {name} to {period // least * least or least} or {other} to a divisor of {period}",
                )


class StepsType(PlanRule):
    """Train steps that are not a whole number."""

    code = "GIN09"
    title = "train steps that are not a whole number"
    why = "T5X compares and counts with them after it restored the checkpoint, or in the last epoch of the run."
    bad = training("TRAIN_STEPS = 1e4", at="TRAIN_STEPS = 1e4")
    good = training("TRAIN_STEPS = 10_000")

    def check(self, plan: Planned) -> Iterator[Finding]:
        steps = plan.steps
        if steps is not None and not steps.is_whole:
            value = steps.value
            yield self.finding(
                f"the train steps are {value!r}, a {type(value).__name__}; T5X fails on it only after restoring",
                steps.key,
                "give a whole number, without quotes, point or exponent",
            )


class StepsBelowCheckpoint(PlanRule):
    """Fewer steps in all than the checkpoint has done."""

    code = "CKP01"
    title = "fewer total steps than the checkpoint's step"
    why = "Train steps count from the first step of pretraining; T5X notices after the whole checkpoint is restored."
    bad = training("TRAIN_STEPS = 20_000", *_FROM_CHECKPOINT, at="TRAIN_STEPS = 20_000")
    good = training("TRAIN_STEPS = 1_020_000", *_FROM_CHECKPOINT)

    def check(self, plan: Planned) -> Iterator[Finding]:
        steps = plan.steps
        if steps is None or plan.start.is_refused:  # the step is that of a path without a checkpoint
            return
        if steps.total is not None and steps.first is not None and steps.total < steps.first:
            yield self.finding(
                f"{steps.key.short} is {steps.total}, and the checkpoint {plan.start.path} is already at step "
                f"{steps.first}",
                steps.key,
                f"train steps count from zero: set {steps.key.short} to {steps.first} plus the steps to train",
            )


class NoStepsLeft(PlanRule):
    """As many steps as the checkpoint has done."""

    code = "CKP02"
    title = "no step left to train"
    why = "The job succeeds within minutes, having trained nothing; T5X only logs a warning."
    bad = training("TRAIN_STEPS = 1_000_000", *_FROM_CHECKPOINT, at="TRAIN_STEPS = 1_000_000")
    good = training("TRAIN_STEPS = 1_020_000", *_FROM_CHECKPOINT)

    def check(self, plan: Planned) -> Iterator[Finding]:
        steps = plan.steps
        if steps is not None and steps.first is not None and steps.total == steps.first and not plan.start.is_refused:
            at = f", the step of the checkpoint {plan.start.path}" if plan.start.path else ""
            yield self.finding(
                f"{steps.key.short} is {steps.total}{at}: T5X trains no step and succeeds",
                steps.key,
                f"set {steps.key.short} to {f'{steps.first} plus ' if steps.first else ''}the steps to train",
            )


class NothingKept(PlanRule):
    """Training that writes no checkpoint."""

    code = "CKP23"
    title = "training that saves no checkpoint"
    why = (
        "With a `SaveCheckpointConfig.period` of 0 or None T5X trains to the end, and what it has learned is gone with "
        "the job. Here evaluation and inference, which begin with the checkpoint, cannot be tried either."
    )
    bad = training("utils.SaveCheckpointConfig.period = 0", at="utils.SaveCheckpointConfig.period = 0")
    good = training("utils.SaveCheckpointConfig.period = 1000")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields an error for a period that saves nothing, a note where nothing is bound to save with."""
        from t5x_harness.plan.checkpoints_written import save_config

        if plan.steps is None or not plan.steps.to_train:
            return
        save = save_config(plan)
        if save is not None and save.period:
            return
        key = plan.config.find("period", "SaveCheckpointConfig")
        key = plan.config.owner(key) if key else None
        has = "has no SaveCheckpointConfig" if save is None else f"saves with a period of {save.period!r}"
        yield self.finding(
            f"the run trains {plan.steps.to_train} steps and {has}: it keeps nothing of them",
            key if save is not None else plan.config.owner_of("checkpoint_cfg"),
            f"set {key.short if key else 'utils.SaveCheckpointConfig.period'} to a number of steps above 0",
            severity=Severity.NOTE if save is None else None,
        )
