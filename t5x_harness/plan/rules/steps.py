"""MSH12, CKP01, CKP02, CKP23 and GIN09: steps and periods, every value computed and the checkpoint's step known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Found
from t5x_harness.gin.config import BindingKey
from t5x_harness.lint.rules.numbers import GIN09
from t5x_harness.lint.rules.saving import CKP23
from t5x_harness.lint.rules.steps import CKP01, CKP02, MSH12
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


@finds(MSH12)
def periods(plan: Planned) -> Iterator[Found]:
    """Finds each period that is not a multiple of the smallest one."""
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
            yield Found(
                f"{name} is {period} and {other} is {least}: the smallest period must divide the others, and T5X "
                "checks it only after restoring",
                owners[name],
                f"set {name} to {period // least * least or least} or {other} to a divisor of {period}",
            )


@finds(GIN09)
def steps_type(plan: Planned) -> Iterator[Found]:
    """Finds train steps that are not a whole number."""
    steps = plan.steps
    if steps is not None and not steps.is_whole:
        value = steps.value
        yield Found(
            f"the train steps are {value!r}, a {type(value).__name__}; T5X fails on it only after restoring",
            steps.key,
            "give a whole number, without quotes, point or exponent",
        )


@finds(CKP01)
def steps_below_checkpoint(plan: Planned) -> Iterator[Found]:
    """Finds fewer steps in all than the checkpoint has done."""
    steps = plan.steps
    if steps is None or plan.start.is_refused:  # the step is that of a path without a checkpoint
        return
    if steps.total is not None and steps.first is not None and steps.total < steps.first:
        yield Found(
            f"{steps.key.short} is {steps.total}, and the checkpoint {plan.start.path} is already at step "
            f"{steps.first}",
            steps.key,
            f"train steps count from zero: set {steps.key.short} to {steps.first} plus the steps to train",
        )


@finds(CKP02)
def no_steps_left(plan: Planned) -> Iterator[Found]:
    """Finds as many steps as the checkpoint has done."""
    steps = plan.steps
    if steps is not None and steps.first is not None and steps.total == steps.first and not plan.start.is_refused:
        at = f", the step of the checkpoint {plan.start.path}" if plan.start.path else ""
        yield Found(
            f"{steps.key.short} is {steps.total}{at}: T5X trains no step and succeeds",
            steps.key,
            f"set {steps.key.short} to {f'{steps.first} plus ' if steps.first else ''}the steps to train",
        )


@finds(CKP23)
def nothing_kept(plan: Planned) -> Iterator[Found]:
    """Finds training that saves no checkpoint: a note if nothing is bound to save with."""
    if plan.steps is None or not plan.steps.to_train:
        return
    save = plan.save
    if save is not None and save.period:
        return
    key = plan.config.owner(plan.config.find("period", "SaveCheckpointConfig"))
    has = "has no SaveCheckpointConfig" if save is None else f"saves with a period of {save.period!r}"
    yield Found(
        f"the run trains {plan.steps.to_train} steps and {has}: it keeps nothing of them",
        key if save is not None else plan.config.owner_of("checkpoint_cfg"),
        f"set {key.short if key else 'utils.SaveCheckpointConfig.period'} to a number of steps above 0",
        severity=Severity.NOTE if save is None else None,
    )
