"""CKP14, CKP15, CKP23 and POD07: which checkpoints a run keeps, and whether it can be repeated."""

import math
from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.lint.rule import Context, ParameterValue, run_function, save_config, start_step
from t5x_harness.spec import Mode, Severity

_MANY = 50
_HEAD = run_head("pretrain", "from t5x import utils")


@Rule(
    "CKP14",
    "many checkpoints, all of them kept",
    severity=Severity.NOTE,
    why=(
        f"`keep` is None unless something sets it: every checkpoint stays. A note from more than {_MANY} on; each "
        "holds the parameters and the optimizer's state."
    ),
    bad=Example(_HEAD + "TRAIN_STEPS = 1_000_000\n", at="TRAIN_STEPS"),
    good=Example(_HEAD + "TRAIN_STEPS = 1_000_000\nutils.SaveCheckpointConfig.keep = 5\n"),
)
def every_checkpoint_kept(context: Context) -> Iterator[Found]:
    """Finds many checkpoints that are never deleted, at the user's statement that is closest to the cause."""
    train, save = run_function(context, Mode.TRAIN), save_config(context)
    if not save or save.value("keep") is not None:
        return
    relative = train.parameter("relative_steps")
    is_relative = relative is not None and bool(relative.value)
    total = train.parameter("relative_steps" if is_relative else "total_steps", int)
    period = save.parameter("period", int)
    start = 0 if is_relative else start_step(context)
    if total is None or period is None or start is None:
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


CKP23 = Rule(
    "CKP23",
    "no checkpoint is saved",
    why=(
        "With `period = 0` or None T5X trains to the end, succeeds, and leaves no checkpoint behind, although a "
        "SaveCheckpointConfig is bound. If a run should keep nothing, bind `utils.CheckpointConfig.save = None`."
    ),
    bad=training("utils.SaveCheckpointConfig.period = 0", at="utils.SaveCheckpointConfig.period = 0"),
    good=training("utils.SaveCheckpointConfig.period = 1000"),
)


@CKP23
def nothing_saved(context: Context) -> Iterator[Found]:
    """Finds a config for saving checkpoints that saves none."""
    save = save_config(context)
    period = save.parameter("period")
    if period is None or save.value("checkpoint_steps"):
        return
    if period.value is None or (period.value == 0 and isinstance(period.value, int)):
        yield Found(
            f"{period.at} = {period.value}: no checkpoint is saved, and nothing is left of the run",
            period.at,
            f"bind {period.at} to the steps between two checkpoints, or utils.CheckpointConfig.save = None "
            "if none is wanted",
        )


_SEEDED = _HEAD + "train/utils.DatasetConfig.seed = 42\n"


def _dataset_seed(context: Context) -> ParameterValue | None:
    """Returns the seed of the training data, if the user set it."""
    train = run_function(context, Mode.TRAIN)
    seed = train.built("train_dataset_cfg", "t5x.utils.DatasetConfig").parameter("seed", int)
    return None if seed is None or context.in_t5x(seed.at.location) else seed


@Rule(
    "CKP15",
    "seeded training data whose position is not saved",
    severity=Severity.WARNING,
    why=(
        "After a preemption the run goes on from its checkpoint, but the data starts again from the first example, in "
        "the same order: the beginning is trained on twice and the end never. T5X only logs that this is dangerous."
    ),
    bad=Example(_SEEDED, at="train/utils.DatasetConfig.seed"),
    good=Example(_SEEDED + "utils.SaveCheckpointConfig.save_dataset = True\nRANDOM_SEED = 0\n"),
)
def seed_without_position(context: Context) -> Iterator[Found]:
    """Finds data in a fixed order whose position is not saved."""
    seed, save = _dataset_seed(context), save_config(context)
    period = save.parameter("period")
    if seed is None or period is None or save.value("save_dataset", False) is not False:
        return
    train, start = run_function(context, Mode.TRAIN), start_step(context)
    total, steps = train.value("total_steps"), train.value("relative_steps")
    if not steps and isinstance(total, int) and start is not None:
        steps = total - start
    if isinstance(steps, int) and isinstance(period.value, int) and not 0 < period.value < steps:
        return  # there is no checkpoint to resume from: a restart begins at the first step, as the data does
    yield Found(
        f"{seed.at} = {seed.value} fixes the order of the training data, and its position is not saved: each "
        "restart trains on the same first examples again",
        seed.at,
        f"bind {period.sibling('save_dataset')} = True, or {seed.at} = None for a new order at each start",
    )


@Rule(
    "POD07",
    "seeded run that does not repeat itself",
    severity=Severity.NOTE,
    why=(
        "`random_seed = None` seeds dropout and initialization with the clock, even if the data is seeded. The "
        "hardware's random numbers depend on the mesh: the same seed gives others on another slice or with other "
        "partitions."
    ),
    bad=Example(_SEEDED + "utils.SaveCheckpointConfig.save_dataset = True\n", at="train/utils.DatasetConfig.seed"),
    good=Example(_SEEDED + "utils.SaveCheckpointConfig.save_dataset = True\nRANDOM_SEED = 0\n"),
)
def not_repeatable(context: Context) -> Iterator[Found]:
    """Finds a seeded run that does not repeat itself, or does so only on the same mesh."""
    train = run_function(context, Mode.TRAIN)
    data, seed, hardware = _dataset_seed(context), train.parameter("random_seed"), train.parameter("use_hardware_rng")
    if data is not None and seed is not None and seed.value is None:
        yield Found(
            f"{data.at} = {data.value} seeds the data, and {seed.at} = None leaves dropout and initialization to "
            "the clock",
            data.at if context.in_t5x(seed.at.location) else seed.at,
            f"bind {seed.at} = 0 too",
        )
    if seed is None or hardware is None or not isinstance(seed.value, int):
        return
    if hardware.value is True and not context.in_t5x(hardware.at.location):
        yield Found(
            f"{hardware.at} = True: with {seed.at} = {seed.value} the run repeats itself only on the same slice "
            "and partitions",
            hardware.at,
            f"bind {hardware.at} = False if it has to repeat elsewhere",
        )
