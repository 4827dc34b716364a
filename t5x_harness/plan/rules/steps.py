"""MSH12, CKP01, CKP02, CKP23, CKP30, GIN09, GIN24, GIN26, OPT01 and OPT02: steps, periods and learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Found, Rule, training
from t5x_harness.gin.config import BindingKey
from t5x_harness.lint.rules.saving import CKP23
from t5x_harness.lint.rules.steps import CKP01, CKP02, FACTORS, GIN24, GIN26, MSH12
from t5x_harness.lint.rules.values import GIN09
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned
    from t5x_harness.plan.steps import LearningRate

_PREEMPTIBLE = ("from t5x_harness import preemption", "train_script.train.trainer_cls = @preemption.Trainer")


@MSH12
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


@GIN09
def steps_type(plan: Planned) -> Iterator[Found]:
    """Finds a number of train steps that is not a whole number."""
    steps = plan.steps
    if steps is not None and not steps.is_whole:
        value = steps.value
        message = f"the train steps are {value!r}, a {type(value).__name__}; T5X fails on it only after restoring"
        yield Found(message, steps.key, "give a whole number, without quotes, point or exponent")


@CKP01
def steps_below_checkpoint(plan: Planned) -> Iterator[Found]:
    """Finds a total of steps that is less than the checkpoint's step."""
    steps = plan.steps
    if steps is None or plan.start.is_refused:  # the step is from a path without a checkpoint
        return
    if steps.total is not None and steps.first is not None and steps.total < steps.first:
        yield Found(
            f"{steps.key.short} is {steps.total}, and the checkpoint {plan.start.path} is already at step "
            f"{steps.first}",
            steps.key,
            f"train steps count from zero: set {steps.key.short} to {steps.first} plus the steps to train",
        )


@CKP02
def no_steps_left(plan: Planned) -> Iterator[Found]:
    """Finds a total of steps that equals the checkpoint's step."""
    steps = plan.steps
    if steps is not None and steps.first is not None and steps.total == steps.first and not plan.start.is_refused:
        at = f", the step of the checkpoint {plan.start.path}" if plan.start.path else ""
        message = f"{steps.key.short} is {steps.total}{at}: T5X trains no step and succeeds"
        fix = f"set {steps.key.short} to {f'{steps.first} plus ' if steps.first else ''}the steps to train"
        yield Found(message, steps.key, fix)


@CKP23
def nothing_kept(plan: Planned) -> Iterator[Found]:
    """Finds training that saves no checkpoint; it is a note if no settings for saving are bound."""
    if plan.steps is None or not plan.steps.to_train:
        return
    save = plan.save
    if (save is not None and save.period) or (save is None and plan.is_preemptible):
        return  # the latter is CKP30
    key = plan.config.owner(plan.config.find("period", "SaveCheckpointConfig"))
    has = "has no SaveCheckpointConfig" if save is None else f"saves with a period of {save.period!r}"
    yield Found(
        f"the run trains {plan.steps.to_train} steps and {has}: it keeps nothing of them",
        key if save is not None else plan.config.owner_of("checkpoint_cfg"),
        f"set {key.short if key else 'utils.SaveCheckpointConfig.period'} to a number of steps above 0",
        severity=Severity.NOTE if save is None else None,
    )


@Rule(
    "CKP30",
    "trainer for preempted jobs in a run that saves no checkpoints",
    severity=Severity.WARNING,
    why=(
        "The trainer of `t5x_harness.preemption` ends the training on SIGTERM, and T5X writes the emergency checkpoint "
        "only if it writes checkpoints at all: with a SaveCheckpointConfig that has a period. Without one, a "
        "preemption costs every step."
    ),
    bad=training(*_PREEMPTIBLE, "utils.CheckpointConfig.save = None", at="train_script.train.trainer_cls"),
    good=training(*_PREEMPTIBLE, "utils.SaveCheckpointConfig.period = 1000"),
)
def no_emergency_checkpoint(plan: Planned) -> Iterator[Found]:
    """Finds a trainer that saves on SIGTERM in a run without a config for saving."""
    if plan.steps is None or not plan.steps.to_train or plan.save is not None or not plan.is_preemptible:
        return
    yield Found(
        f"the trainer ends the training on SIGTERM, but the run of {plan.steps.to_train} steps has no "
        "SaveCheckpointConfig: T5X writes no emergency checkpoint, and a preemption costs all steps",
        plan.config.owner_of("trainer_cls"),
        "bind utils.CheckpointConfig.save = @utils.SaveCheckpointConfig() and utils.SaveCheckpointConfig.period to the "
        "steps between two checkpoints",
    )


_NOTHING = 1e-7
"""A rate at which nothing is learned; T5X's schedules do not go below 1e-8."""
_RUN_DOWN = 0.01
"""The share of the highest rate below which a schedule counts as over."""


@GIN24
def schedule_is_over(plan: Planned) -> Iterator[Found]:
    """Finds a schedule whose warm-up or decay ends before the first step to train."""
    rate, steps = plan.learning_rate, plan.steps
    if rate is None or rate.schedule is None or rate.curve is None or steps is None:
        return
    key = _key_in_t5x(plan, "factors") or rate.schedule.key
    if rate.curve.not_finite is not None:
        step, value = rate.curve.not_finite
        yield Found(
            f"the learning rate is {value} at step {step}: the update of that step leaves no parameter finite",
            _zero_key(plan) or key,
            "set warmup_steps to at least 1, or take linear_warmup out of factors"
            if _zero_key(plan)
            else "look for a division by zero in the schedule",
            severity=Severity.ERROR,
        )
        return
    if rate.curve.highest[1] <= _NOTHING:
        yield Found(
            f"the learning rate is {rate.curve.highest[1]:.2g} at most from the first step to the last: nothing "
            "is learnt",
            key,
            "let the schedule begin at the first step to train, or make it longer",
            # Another optimizer may have a rate of its own.
            severity=Severity.ERROR if rate.schedule.optimizer in _ADAPTIVE else None,
        )
        return
    problem = _over(rate, is_own=_key_in_t5x(plan, "factors") is None)
    if problem and steps.first:
        message, severity = problem
        yield Found(message, key, _fix(plan, steps.first), severity=severity)


def _over(rate: LearningRate, is_own: bool) -> tuple[str, Severity] | None:
    """Returns a message, with its severity, if a part of the schedule ends before the run begins; else None."""
    before, curve = rate.before, rate.curve
    if before is None or curve is None:
        return None
    (first, now), (top_step, top) = curve.points[0], before.highest
    if before.not_finite is not None or (is_own and top >= 1):
        return None  # nobody trained with such a rate: the formula is meant for later steps
    if curve.highest[1] < _RUN_DOWN * top:
        return (
            f"the learning rate has run down before the run begins: it is {now:.3g} at step {first}, the first to be "
            f"trained, and was {top:.3g} at step {top_step}"
        ), Severity.WARNING
    warmed_up = before.points[0][1] < _RUN_DOWN * top and top_step < first
    if not warmed_up or curve.rises:
        return None
    message = (
        f"the schedule warms up from step 0 to {top_step}, and the run begins at step {first}: its first update is "
        f"made at {now:.3g}, without a warm-up"
    )
    # A rate that keeps falling may well continue the same schedule.
    return message, Severity.NOTE if curve.falls else Severity.WARNING


def _key_in_t5x(plan: Planned, parameter: str) -> BindingKey | None:
    """Returns the binding of a parameter of T5X's scheduler.

    Returns None if the parameter is not bound, or the run has another schedule.
    """
    schedule = plan.learning_rate.schedule if plan.learning_rate is not None else None
    value = plan.config.value(plan.config.owner(schedule.key)) if schedule is not None else None
    if not any(name.endswith("create_learning_rate_scheduler") for name in plan.config.references(value)):
        return None
    return plan.config.find(parameter, "create_learning_rate_scheduler")


def _zero_key(plan: Planned) -> BindingKey | None:
    """Returns the binding of T5X's ``warmup_steps`` if it is 0; a warm-up divides by this value."""
    key = _key_in_t5x(plan, "warmup_steps")
    owner = plan.config.owner(key)
    return owner if owner is not None and plan.config.value(owner) == 0 else None


def _fix(plan: Planned, first: int) -> str:
    if _key_in_t5x(plan, "factors"):
        return f"set utils.create_learning_rate_scheduler.step_offset = {first:_}"
    return f"count the schedule's steps from {first} on"


@GIN26
def unknown_factor(plan: Planned) -> Iterator[Found]:
    """Finds each factor that neither T5X's recorded list nor the installed T5X knows."""
    factor = plan.learning_rate.unknown_factor if plan.learning_rate is not None else None
    if factor is not None:
        key = plan.config.find("factors", "create_learning_rate_scheduler")
        message = f"the learning rate schedule has a factor {factor!r}, which T5X does not know"
        yield Found(message, plan.config.owner(key), f"use one of {', '.join(FACTORS)}")


_ADAPTIVE = frozenset(
    {
        "Adafactor", "adafactor", "adabelief", "adam", "adamax", "adamaxw", "adamw", "amsgrad", "lamb", "lion", "nadam",
        "nadamw", "novograd", "radam", "yogi",
    }
)  # fmt: skip
"""Optimizers whose updates are about as large as the rate for any gradients; only their rates can be judged."""
_LARGE = 0.1
"""T5 is trained with at most 0.01; steps of a tenth of a parameter's size make the model forget everything."""
_SMALL = 1e-5
_SMALL_ABSOLUTE = 1e-6
"""The limit for rates that are not relative to the parameters, as with Adam, which fine-tunes at a few millionths."""
_SCHEDULE = "utils.create_learning_rate_scheduler"
_CONSTANT = f"{_SCHEDULE}.factors = 'constant'"
_RISING = (f"{_SCHEDULE}.factors = 'constant * linear_warmup'", f"{_SCHEDULE}.base_learning_rate = 0.001")


@Rule(
    "OPT01",
    "learning rate that is far too large or too small for the optimizer",
    severity=Severity.WARNING,
    why=(
        "Adafactor and Adam change each parameter by about the learning rate in every step, Adafactor in proportion to "
        "the parameter's size. At 1.0 the model forgets what it knew at once, below 0.00001 it learns nothing, and the "
        "job runs to its end either way. `rsqrt_decay` wants a base of about 1.0, `constant` one of about 0.001."
    ),
    bad=training(_CONSTANT, f"{_SCHEDULE}.base_learning_rate = 1.0", at=f"{_SCHEDULE}.base_learning_rate"),
    good=training(_CONSTANT, f"{_SCHEDULE}.base_learning_rate = 0.001"),
)
def useless_rate(plan: Planned) -> Iterator[Found]:
    """Finds a rate with which nothing can be learned, if the optimizer is known."""
    rate = plan.learning_rate
    if rate is None or rate.schedule is None or rate.curve is None or rate.curve.not_finite is not None:
        return
    schedule, curve = rate.schedule, rate.curve
    if schedule.optimizer not in _ADAPTIVE:
        return
    (first, start), (last, end), (top_step, top) = curve.points[0], curve.points[-1], curve.highest
    # Adafactor's rate is relative to the parameters' sizes, unless the config says otherwise.
    settings = getattr(getattr(plan.run.model, "optimizer_def", None), "hyper_params", None)
    relative = getattr(settings, "multiply_by_parameter_scale", False)
    if end > _LARGE or top >= 1:
        step, value = (last, end) if end > _LARGE else (top_step, top)
        problem = f"the learning rate is {value:.3g} at step {step}, far too much for {schedule.optimizer}"
        fix = "lower it: fine-tuning of T5 takes 0.001, pretraining 0.01 at most"
    elif _NOTHING < top < (_SMALL if relative else _SMALL_ABSOLUTE):
        problem = (
            f"the learning rate goes from {start:.3g} at step {first} to {end:.3g} at step {last}, {top:.3g} at "
            f"most: {schedule.optimizer} learns next to nothing with it"
        )
        fix = "raise it: fine-tuning of T5 takes 0.001"
    else:
        return
    key, factors = _key_in_t5x(plan, "base_learning_rate"), _key_in_t5x(plan, "factors")
    named = str(plan.config.value(plan.config.owner(factors))) if factors else ""
    if top < _SMALL and "rsqrt" in named:
        fix += f", which {named!r} divides by the square root of the step; or leave that factor out"
    yield Found(problem, plan.config.owner(key) if key else schedule.key, fix)


@Rule(
    "OPT02",
    "warm-up that is longer than the run",
    severity=Severity.WARNING,
    why=(
        "The rate rises from the first step to the last and never reaches what base_learning_rate says: most of the "
        "run silently trains at a fraction of the chosen rate."
    ),
    bad=training(*_RISING, f"{_SCHEDULE}.warmup_steps = 20_000", at=f"{_SCHEDULE}.warmup_steps"),
    good=training(*_RISING, f"{_SCHEDULE}.warmup_steps = 1_000"),
)
def unfinished_warmup(plan: Planned) -> Iterator[Found]:
    """Finds a warm-up of T5X's own schedule that lasts longer than the run."""
    steps, config = plan.steps, plan.config
    keys = {name: _key_in_t5x(plan, name) for name in ("factors", "warmup_steps", "step_offset")}
    given = {name: config.value(config.owner(key)) for name, key in keys.items() if key is not None}
    warmup, offset = given.get("warmup_steps"), given.get("step_offset", 0)
    if steps is None or steps.first is None or not steps.to_train or keys["warmup_steps"] is None:
        return
    if "linear_warmup" not in str(given.get("factors", "linear_warmup")):
        return
    if not isinstance(warmup, int) or not isinstance(offset, int):
        return
    end = steps.first + steps.to_train - offset
    if 0 < end < warmup:
        yield Found(
            f"the warm-up takes {warmup:,} steps, and the run ends at step {end:,} of the schedule, when "
            f"{end / warmup:.0%} of it are done",
            config.owner(keys["warmup_steps"]),
            f"warm up for fewer steps than the {steps.to_train:,} that are trained",
        )
