"""GIN24 and GIN26: learning rate schedules that do not fit the steps to train, or that T5X does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.plan.rule import Example, PlanRule
from t5x_harness.resolve import examples
from t5x_harness.spec import Finding, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.learning_rate import LearningRate
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.gin_config import BindingKey

_NOTHING = 1e-7
"""A rate at which nothing is learnt; T5X's schedules do not go below 1e-8."""
_RUN_DOWN = 0.01
"""What is left of the highest rate when a schedule is over."""
_FACTORS = "constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay, decay_every, cosine_decay"

_FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
    "TRAIN_STEPS = 1_020_000",
)
_WARMING_UP = (
    *_FROM_CHECKPOINT,
    "utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'",
    "utils.create_learning_rate_scheduler.base_learning_rate = 0.001",
    "utils.create_learning_rate_scheduler.warmup_steps = 1000",
)


class ScheduleIsOver(PlanRule):
    """A schedule whose warm-up or decay lies before the first step to train."""

    code = "GIN24"
    severity = Severity.WARNING
    title = "learning rate schedule that is over before the first step to train"
    why = (
        "Schedules count from step 0 of pretraining unless step_offset says otherwise. From a checkpoint at step "
        "1,000,000, a warm-up of 1,000 steps never happens, and a decay over 100,000 steps has long ended: the run "
        "trains at full rate from its first step, or learns nothing. T5X says neither."
    )
    bad = Example(
        examples.trained(*_WARMING_UP), files=examples.FILES, at="utils.create_learning_rate_scheduler.factors"
    )
    good = Example(
        examples.trained(*_WARMING_UP, "utils.create_learning_rate_scheduler.step_offset = 1_000_000"),
        files=examples.FILES,
    )

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so."""
        rate, steps = plan.learning_rate, plan.steps
        if rate is None or rate.schedule is None or rate.course is None or steps is None:
            return
        key = _key_of(plan, rate.schedule.key)
        if rate.course.highest[1] <= _NOTHING:
            yield self.finding(
                plan.config,
                f"the learning rate is {rate.course.highest[1]:.2g} at most from the first step to the last: nothing "
                "is learnt",
                key,
                "let the schedule begin at the first step to train, or make it longer",
            )
            return
        problem = _over(rate)
        if problem and steps.first:
            message, severity = problem
            yield self.finding(plan.config, message, key, _mend(plan, steps.first), severity=severity)


def _over(rate: LearningRate) -> tuple[str, Severity] | None:
    """What of a schedule is over when the run begins, in words, and how bad that is; None if nothing is."""
    before, course = rate.before, rate.course
    if before is None or course is None:
        return None
    (first, now), (top_step, top) = course.points[0], before.highest
    if course.highest[1] < _RUN_DOWN * top:
        return (
            f"the learning rate has run down before the run begins: it is {now:.3g} at step {first}, the first to be "
            f"trained, and was {top:.3g} at step {top_step}"
        ), Severity.WARNING
    warmed_up = before.points[0][1] < _RUN_DOWN * top and top_step < first
    if not warmed_up or course.rises:
        return None
    message = (
        f"the schedule warms up from step 0 to {top_step}, and the run begins at step {first}: its first update is "
        f"made at {now:.3g}, without a warm-up"
    )
    # A rate that goes on falling may well be the same schedule continued.
    return message, Severity.NOTE if course.falls else Severity.WARNING


def _key_of(plan: Planned, key: BindingKey) -> BindingKey:
    """The binding that shapes the schedule: its factors if it is T5X's own."""
    return plan.config.find("factors", "create_learning_rate_scheduler") or key


def _mend(plan: Planned, first: int) -> str:
    if plan.config.find("factors", "create_learning_rate_scheduler"):
        return f"set utils.create_learning_rate_scheduler.step_offset = {first}"
    return f"count the schedule's steps from {first} on"


class UnknownFactor(PlanRule):
    """A factor of the schedule that T5X does not know."""

    code = "GIN26"
    title = "unknown factor in the learning rate schedule"
    why = "T5X raises `Unknown factor` while it traces the train step, after it restored the checkpoint."
    bad = Example(
        examples.trained("utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_dacay'"),
        files=examples.FILES,
        at="utils.create_learning_rate_scheduler.factors",
    )
    good = Example(
        examples.trained("utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'"),
        files=examples.FILES,
    )

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so."""
        factor = plan.learning_rate.unknown_factor if plan.learning_rate is not None else None
        if factor is not None:
            key = plan.config.find("factors", "create_learning_rate_scheduler")
            yield self.finding(
                plan.config,
                f"the learning rate schedule has a factor {factor!r}, which T5X does not know",
                plan.config.owner(key) if key else None,
                f"use one of {_FACTORS}",
            )
