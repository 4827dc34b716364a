"""MSH12, CKP01, CKP02 and GIN24 to GIN26: periods, steps, learning rates and losses that do not fit together."""

import re
from collections.abc import Iterator, Mapping

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.lint.rule import (
    ConfiguredObject,
    Context,
    ParameterValue,
    absent_checkpoint,
    evaluates,
    initial_step,
    restore_config,
    run_function,
    save_config,
    start_step,
)
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
    "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
)
"""Lines of an example that starts from a checkpoint."""


MSH12 = Rule(
    "MSH12",
    "periods that are not multiples of the smallest one",
    why=(
        "T5X trains in rounds of the smallest period and refuses others that are not multiples of it, but only after "
        "it restored the checkpoint."
    ),
    bad=training(
        "utils.SaveCheckpointConfig.period = 5000",
        "train_script.train.eval_period = 1200",
        at="utils.SaveCheckpointConfig.period = 5000",
    ),
    good=training("utils.SaveCheckpointConfig.period = 5000", "train_script.train.eval_period = 1000"),
)


@MSH12
def periods(context: Context) -> Iterator[Found]:
    """Finds each period that is not a multiple of the smallest one."""
    train = run_function(context, Mode.TRAIN)
    given = {
        "eval period": train.parameter("eval_period") if evaluates(train) else None,
        "checkpoint period": save_config(context).parameter("period"),
        "gc period": train.parameter("gc_period"),
    }
    periods = {name: g for name, g in given.items() if g and isinstance(g.value, int) and g.value > 0}
    if not periods:
        return
    least_name, least = min(periods.items(), key=lambda item: item[1].value)
    for name, period in periods.items():
        if period.value % least.value:
            below = period.value - period.value % least.value
            yield Found(
                f"the {name} {period.value} ({period.at}) is not a multiple of the {least_name} {least.value} "
                f"({least.at}, {least.at.location})",
                least.at if context.in_t5x(period.at.location) else period.at,
                f"make it a multiple of {least.value}, such as {below} or {below + least.value}",
            )


def _steps(context: Context) -> tuple[ParameterValue, int, str] | None:
    """Returns the total steps, the checkpoint's step and its path, if the total includes the checkpoint's steps."""
    train = run_function(context, Mode.TRAIN)
    initial = initial_step(context)
    total = train.parameter("total_steps", int)
    if initial is None or total is None:
        return None
    if train.value("relative_steps") or absent_checkpoint(context) is not None:
        return None
    step, path = initial
    return total, step, path.value


CKP01 = Rule(
    "CKP01",
    "fewer total steps than the checkpoint's step",
    why=(
        "TRAIN_STEPS counts from the very first step of pretraining. T5X restores the whole checkpoint before it stops "
        "with `Unexpected total_steps … < checkpoint step`."
    ),
    bad=training("TRAIN_STEPS = 20_000", *FROM_CHECKPOINT, at="TRAIN_STEPS = 20_000"),
    good=training("TRAIN_STEPS = 1_020_000", *FROM_CHECKPOINT),
)


@CKP01
def steps_below_checkpoint(context: Context) -> Iterator[Found]:
    """Finds total steps that are below the checkpoint's step."""
    found = _steps(context)
    if found is not None and found[0].value < found[1]:
        total, step, path = found
        yield Found(
            f"{total.at} = {total.value} is below step {step} of the checkpoint {path}",
            total.at,
            f"count the checkpoint's steps too: {total.at} = {step + total.value:_} trains {total.value} more",
        )


CKP02 = Rule(
    "CKP02",
    "no step left to train",
    why=(
        "The job succeeds within minutes, having trained nothing; T5X only logs a warning. With "
        "`train.run_eval_before_training = True` that is a way to evaluate, and no mistake."
    ),
    bad=training("TRAIN_STEPS = 1_000_000", *FROM_CHECKPOINT, at="TRAIN_STEPS = 1_000_000"),
    good=training("TRAIN_STEPS = 1_020_000", *FROM_CHECKPOINT),
)


@CKP02
def no_steps_left(context: Context) -> Iterator[Found]:
    """Finds total steps that equal the checkpoint's step."""
    found = _steps(context)
    only_evaluates = run_function(context, Mode.TRAIN).value("run_eval_before_training", False)
    if found is not None and found[0].value == found[1] and not only_evaluates:
        total, step, path = found
        yield Found(
            f"{total.at} = {total.value} is the step of the checkpoint {path}: nothing would be trained",
            total.at,
            f"add the steps to train: {total.at} = {step:_} + N, written as one number",
        )


_DIVIDING = ("linear_warmup", "linear_decay", "rsqrt_decay", "rsqrt_normalized_decay")  # by the number of warmup steps
FACTORS = ("constant", *_DIVIDING, "decay_every", "cosine_decay")
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


GIN24 = Rule(
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


@GIN24
def schedule_not_shifted(context: Context) -> Iterator[Found]:
    """Finds schedules that are over when the run begins: a note if the run may continue pretraining."""
    schedule, initial = _schedule(context), initial_step(context)
    factors = schedule.parameter("factors", str)
    if factors is None:
        return
    if (warmup := schedule.parameter("warmup_steps")) is not None and warmup.value == 0:
        yield from _division_by_zero(context, factors, warmup)
        return
    if initial is not None:
        yield from _over(schedule, initial[0], factors)


def _division_by_zero(context: Context, factors: ParameterValue, warmup: ParameterValue) -> Iterator[Found]:
    """Finds zero warmup steps, which are 0/0 at step 0 of the schedule."""
    names = _names(factors.value)
    divided = next((name for name in _DIVIDING if name in names), None)
    if divided is None:
        return
    start, offset = start_step(context), _schedule(context).value("step_offset", 0)
    first = max(0, start - offset) if start is not None and isinstance(offset, int) else None
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


def _over(schedule: ConfiguredObject, initial: int, factors: ParameterValue) -> Iterator[Found]:
    """Yields a finding for a warmup or a decay that ends before the first step to train."""
    warmup, decay = schedule.value("warmup_steps", 1000), schedule.value("decay_factor", 0.5)
    offset = schedule.value("step_offset", 0)
    if not all(isinstance(number, (int, float)) for number in (warmup, decay, offset)):
        return
    first = max(0, initial - offset)
    names = set(_names(factors.value))
    begins = f"the run begins at step {initial} of the schedule (step_offset {offset})"
    fix = f"bind {factors.sibling('step_offset')} = {initial:_}"
    if "linear_decay" in names and first > 0 and 1 + decay * (warmup - first) <= 0:
        yield Found(f"{begins}, where linear_decay has come to its end: nothing would be learnt", factors.at, fix)
    elif "linear_warmup" in names and first >= warmup:
        yield Found(
            f"{begins}, behind the {warmup} steps of its linear_warmup: there would be no warmup",
            factors.at,
            fix,
            severity=Severity.WARNING if names <= {"constant", "linear_warmup"} else Severity.NOTE,
        )


GIN26 = Rule(
    "GIN26",
    "unknown factor in the learning rate schedule",
    why="T5X raises `Unknown factor` while it traces the train step, after it restored the checkpoint.",
    bad=training(
        "utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_dacay'",
        at="utils.create_learning_rate_scheduler.factors",
    ),
    good=training("utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'"),
)


@GIN26
def unknown_factor(context: Context) -> Iterator[Found]:
    """Finds each factor that is neither in T5X's record nor in the T5X in use."""
    factors = _schedule(context).parameter("factors", str)
    if factors is None:
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


# Batch size and length of the targets in pretraining with Mesh TensorFlow.
_FACTORS: Mapping[str, tuple[int, int]] = {"T5": (2048, 114), "mT5": (1024, 229), "ByT5": (1024, 189)}
_FAMILIES: Mapping[str, str] = {
    "T5": r"(t5_1_1_|t5\.1\.1\.)(small|base|large|xl|xxl)|t5_(small|base|large|3B|11B)",
    "mT5": r"mt5_(small|base|large|xl|xxl)",
    "ByT5": r"byt5_(small|base|large|xl|xxl)",
}
_FINETUNED = (
    run_head("finetune", model="base")
    + "INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_base/checkpoint_1000000'\n"
)


def _family(path: str) -> str | None:
    """Returns the family of a public checkpoint from Mesh TensorFlow; None for any other."""
    match = re.search(r"([^/]+)/(?:checkpoint_|model\.ckpt-)(\d+)/?$", path)
    # The steps of the public checkpoints; a user's own run is unlikely to stop there.
    if match is None or int(match[2]) not in (999_900, 1_000_000, 1_000_700):
        return None
    return next((family for family, names in _FAMILIES.items() if re.fullmatch(names, match[1])), None)


@Rule(
    "GIN25",
    "loss normalization that is not the checkpoint's",
    severity=Severity.WARNING,
    why=(
        "Mesh TensorFlow divided the loss by batch size times target length. The optimizer's state in a checkpoint of "
        "its time is made for that; without LOSS_NORMALIZING_FACTOR the loss is larger by some hundred thousand times."
    ),
    bad=Example(_FINETUNED, at="INITIAL_CHECKPOINT_PATH"),
    good=Example(_FINETUNED + "LOSS_NORMALIZING_FACTOR = 233472\n"),
)
def loss_normalizing(context: Context) -> Iterator[Found]:
    """Finds a public checkpoint that is fine-tuned without its own normalization of the loss."""
    train, restore = run_function(context, Mode.TRAIN), restore_config(context)
    path = restore.parameter("path", str)
    model = train.built("model", "t5x.models.EncoderDecoderModel")
    family = _family(path.value) if path is not None else None
    if not model or path is None or family is None:
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
