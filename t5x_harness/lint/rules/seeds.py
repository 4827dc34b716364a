"""CKP15 and POD07: seeds that do not give what they promise."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.configured import ParameterValue, run_function, save_config, start_step
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity

_HEAD = examples.head("pretrain", "from t5x import utils") + "train/utils.DatasetConfig.seed = 42\n"


def _dataset_seed(context: Context) -> ParameterValue | None:
    """Returns the seed of the data to train on, where it is the user's."""
    train = run_function(context, Mode.TRAIN)
    seed = train.built("train_dataset_cfg", "t5x.utils.DatasetConfig").parameter("seed")
    return seed if seed is not None and isinstance(seed.value, int) and not context.in_t5x(seed.at.location) else None


CKP15 = Mistake(
    "CKP15",
    "SeedWithoutPosition",
    "seeded training data whose position is not saved",
    severity=Severity.WARNING,
    why=(
        "After a preemption the run goes on from its checkpoint, but the data starts again from the first example, in "
        "the same order: the beginning is trained on twice and the end never. T5X only logs that this is dangerous."
    ),
    bad=Example(_HEAD, at="train/utils.DatasetConfig.seed"),
    good=Example(_HEAD + "utils.SaveCheckpointConfig.save_dataset = True\nRANDOM_SEED = 0\n"),
)


@finds(CKP15)
def seed_without_position(context: Context) -> Iterator[Found]:
    """Finds data in a fixed order, and nothing remembers how far the run came."""
    seed, save = _dataset_seed(context), save_config(context)
    period = save.parameter("period")
    if seed is None or period is None or save.value("save_dataset", False) is not False:
        return
    if not _saves_before_the_end(context, period):
        return  # a restart begins at the first step, as the data does
    yield Found(
        f"{seed.at} = {seed.value} fixes the order of the training data, and its position is not saved: each "
        "restart trains on the same first examples again",
        seed.at,
        f"bind {period.sibling('save_dataset')} = True, or {seed.at} = None for a new order at each start",
    )


def _saves_before_the_end(context: Context, period: ParameterValue) -> bool:
    """Returns whether there is a checkpoint to go on from; yes where that cannot be known."""
    train, start = run_function(context, Mode.TRAIN), start_step(context)
    total = train.value("total_steps")
    steps = train.value("relative_steps")
    if not steps and isinstance(total, int) and start is not None:
        steps = total - start
    return not isinstance(steps, int) or not isinstance(period.value, int) or 0 < period.value < steps


POD07 = Mistake(
    "POD07",
    "NotRepeatable",
    "seeded run that does not repeat itself",
    severity=Severity.NOTE,
    why=(
        "`random_seed = None` takes the clock for dropout and initialisation, also where the data is seeded. The "
        "hardware's random numbers depend on the mesh: the same seed gives others on another slice or with other "
        "partitions."
    ),
    bad=Example(_HEAD + "utils.SaveCheckpointConfig.save_dataset = True\n", at="train/utils.DatasetConfig.seed"),
    good=Example(_HEAD + "utils.SaveCheckpointConfig.save_dataset = True\nRANDOM_SEED = 0\n"),
)


@finds(POD07)
def not_repeatable(context: Context) -> Iterator[Found]:
    """Finds a seeded run that does not repeat itself, or does so only on the same mesh."""
    train = run_function(context, Mode.TRAIN)
    data, seed, hardware = _dataset_seed(context), train.parameter("random_seed"), train.parameter("use_hardware_rng")
    if data is not None and seed is not None and seed.value is None:
        yield Found(
            f"{data.at} = {data.value} seeds the data, and {seed.at} = None leaves dropout and initialisation to "
            "the clock",
            data.at if context.in_t5x(seed.at.location) else seed.at,
            f"bind {seed.at} = 0 too",
        )
    if (
        seed is not None
        and isinstance(seed.value, int)
        and hardware is not None
        and hardware.value is True
        and not context.in_t5x(hardware.at.location)
    ):
        yield Found(
            f"{hardware.at} = True: with {seed.at} = {seed.value} the run repeats itself only on the same slice "
            "and partitions",
            hardware.at,
            f"bind {hardware.at} = False if it has to repeat elsewhere",
        )
