"""GIN24, GIN25 and GIN26: learning rates and losses that do not fit where the run begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.configured import (
    ConfiguredObject,
    ParameterValue,
    initial_step,
    restore_config,
    run_function,
    start_step,
)
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.rules.steps import FROM_CHECKPOINT
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

FACTORS = (
    "constant",
    "linear_warmup",
    "linear_decay",
    "rsqrt_decay",
    "rsqrt_normalized_decay",
    "decay_every",
    "cosine_decay",
)
_RSQRT = ("rsqrt_decay", "rsqrt_normalized_decay")
_WARMING_UP = (
    *FROM_CHECKPOINT,
    "TRAIN_STEPS = 1_020_000",
    "utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'",
    "utils.create_learning_rate_scheduler.base_learning_rate = 0.001",
    "utils.create_learning_rate_scheduler.warmup_steps = 1000",
)


def _schedule(context: Context) -> ConfiguredObject:
    trainer = run_function(context, Mode.TRAIN).built("trainer_cls", "t5x.trainer.Trainer")
    return trainer.built("learning_rate_fn", "t5x.utils.create_learning_rate_scheduler")


def _names(factors: str) -> list[str]:
    return [name.strip() for name in factors.split("*")]


def _first_step(context: Context) -> int | None:
    """Returns the schedule's step that the run begins at; None if the text does not show it."""
    start, offset = start_step(context), _schedule(context).value("step_offset", 0)
    return max(0, start - offset) if start is not None and isinstance(offset, int) else None


GIN24 = Mistake(
    "GIN24",
    "learning rate schedule that counts from the pretrained step",
    severity=Severity.WARNING,
    why=(
        "The schedule counts steps from the very first one of pretraining. Without `step_offset` a fine-tuning run "
        "begins far behind the warmup, and a linear decay has long come to its end. Where the schedule does begin at "
        "its step 0, `warmup_steps = 0` divides by zero: the first update makes every parameter NaN."
    ),
    later=(
        "It computes every rate: one that has run down before the run begins is found in any schedule, and one that "
        "is NaN at a step to train is an error."
    ),
    bad=training(*_WARMING_UP, at="utils.create_learning_rate_scheduler.factors"),
    good=training(*_WARMING_UP, "utils.create_learning_rate_scheduler.step_offset = 1_000_000"),
)


@finds(GIN24)
def schedule_not_shifted(context: Context) -> Iterator[Found]:
    """Finds schedules that are over when the run begins: a note if that may be pretraining that goes on."""
    schedule, initial = _schedule(context), initial_step(context)
    factors = schedule.parameter("factors")
    if factors is None or not isinstance(factors.value, str):
        return
    if (warmup := schedule.parameter("warmup_steps")) is not None and warmup.value == 0:
        yield from _division_by_zero(context, factors, warmup)
        return
    yield from _over(schedule, initial, factors)


def _division_by_zero(context: Context, factors: ParameterValue, warmup: ParameterValue) -> Iterator[Found]:
    """Finds zero steps of warmup: 0/0 where the schedule is at its step 0."""
    names = _names(factors.value)
    divided = next((name for name in ("linear_warmup", "linear_decay", *_RSQRT) if name in names), None)
    if divided is None:
        return
    first = _first_step(context)
    result = "1/0, an infinite learning rate" if divided == "rsqrt_decay" else "0/0, a learning rate of NaN"
    rest = " * ".join(name for name in names if name != divided)
    yield Found(
        f"{warmup.at} = 0 beside {divided} is {result}, at step 0 of the schedule"
        + (f"; this run begins at step {first}, where {divided} does nothing" if first else ""),
        warmup.at,
        f"without a warmup, write factors = {rest or 'constant'!r}; else bind {warmup.at} to 1 or more"
        if divided == "linear_warmup"
        else f"bind {warmup.at} to 1 or more",
        severity=Severity.ERROR if first == 0 else Severity.WARNING,
    )


def _over(
    schedule: ConfiguredObject, initial: tuple[int, ParameterValue] | None, factors: ParameterValue
) -> Iterator[Found]:
    """Yields a warmup or a decay that ends before the first step to train."""
    if initial is None:
        return
    warmup, decay = schedule.value("warmup_steps", 1000), schedule.value("decay_factor", 0.5)
    offset = schedule.value("step_offset", 0)
    if not all(isinstance(number, (int, float)) for number in (warmup, decay, offset)):
        return
    first = max(0, initial[0] - offset)
    names = set(_names(factors.value))
    begins = f"the run begins at step {initial[0]} of the schedule (step_offset {offset})"
    fix = f"bind {factors.sibling('step_offset')} = {initial[0]:_}"
    if "linear_decay" in names and first > 0 and 1 + decay * (warmup - first) <= 0:
        yield Found(f"{begins}, where linear_decay has come to its end: nothing would be learnt", factors.at, fix)
    elif "linear_warmup" in names and first >= warmup:
        yield Found(
            f"{begins}, behind the {warmup} steps of its linear_warmup: there would be no warmup",
            factors.at,
            fix,
            severity=Severity.WARNING if names <= {"constant", "linear_warmup"} else Severity.NOTE,
        )


GIN26 = Mistake(
    "GIN26",
    "unknown factor in the learning rate schedule",
    why="T5X raises `Unknown factor` while it traces the train step, after it restored the checkpoint.",
    bad=training(
        "utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_dacay'",
        at="utils.create_learning_rate_scheduler.factors",
    ),
    good=training("utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'"),
)


@finds(GIN26)
def unknown_factor(context: Context) -> Iterator[Found]:
    """Finds each factor that neither T5X's record nor the T5X in use has."""
    factors = _schedule(context).parameter("factors")
    if factors is None or not isinstance(factors.value, str):
        return
    for name in _names(factors.value):
        if name in FACTORS or (
            not context.snapshot.is_embedded and context.snapshot.mentions("t5x.utils", name, anywhere=True)
        ):
            continue
        near = closest(name, FACTORS)
        yield Found(
            f"the learning rate schedule has a factor {name!r}, which T5X does not know",
            factors.at,
            f"did you mean {near}?" if near else f"use one of {', '.join(FACTORS)}",
        )


# Batch size times length of the targets in pretraining with Mesh TensorFlow.
_FACTORS: Mapping[str, tuple[int, int]] = {"T5": (2048, 114), "mT5": (1024, 229), "ByT5": (1024, 189)}
_FAMILIES: Mapping[str, str] = {
    "T5": r"(t5_1_1_|t5\.1\.1\.)(small|base|large|xl|xxl)|t5_(small|base|large|3B|11B)",
    "mT5": r"mt5_(small|base|large|xl|xxl)",
    "ByT5": r"byt5_(small|base|large|xl|xxl)",
}
_STEPS = (999_900, 1_000_000, 1_000_700)  # of the public checkpoints; a user's own run hardly stops there
_HEAD = (
    examples.head("finetune", model="base")
    + "INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_base/checkpoint_1000000'\n"
)


def _family(path: str) -> str | None:
    """Returns the family of a public checkpoint that comes from Mesh TensorFlow; None for any other."""
    match = re.search(r"([^/]+)/(?:checkpoint_|model\.ckpt-)(\d+)/?$", path)
    if match is None or int(match[2]) not in _STEPS:
        return None
    return next((family for family, names in _FAMILIES.items() if re.fullmatch(names, match[1])), None)


GIN25 = Mistake(
    "GIN25",
    "loss normalization that is not the checkpoint's",
    severity=Severity.WARNING,
    why=(
        "Mesh TensorFlow divided the loss by batch size times target length. The optimizer's state in a checkpoint of "
        "its time is made for that; without LOSS_NORMALIZING_FACTOR the loss is larger by some hundred thousand times."
    ),
    bad=Example(_HEAD, at="INITIAL_CHECKPOINT_PATH"),
    good=Example(_HEAD + "LOSS_NORMALIZING_FACTOR = 233472\n"),
)


@finds(GIN25)
def loss_normalizing(context: Context) -> Iterator[Found]:
    """Finds a public checkpoint that is fine-tuned without its normalization of the loss, or with another one's."""
    train, restore = run_function(context, Mode.TRAIN), restore_config(context)
    path = restore.parameter("path")
    model = train.built("model", "t5x.models.EncoderDecoderModel")
    if not model or path is None or not isinstance(path.value, str):
        return
    family = _family(path.value)
    if family is None:
        return
    batch, length = _FACTORS[family]
    factor = model.parameter("loss_normalizing_factor")
    others = [b * n for name, (b, n) in _FACTORS.items() if name != family]
    value = None if factor is None else factor.value
    if value is not None and value not in others:
        return
    name = "models.EncoderDecoderModel.loss_normalizing_factor" if factor is None else str(factor.at)
    yield Found(
        f"{name} is {value}, and {family} was pretrained with {batch * length} ({batch} * {length})",
        path.at if factor is None or context.in_t5x(factor.at.location) else factor.at,
        f"bind {name} = {batch * length}",
    )
