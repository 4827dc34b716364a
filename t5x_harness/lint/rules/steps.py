"""MSH12, CKP01 and CKP02: periods and steps that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.lint.checkpoint_files import missing_checkpoint
from t5x_harness.lint.configured import ParameterValue, evaluates, initial_step, run_function, save_config
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode

_HEAD = examples.head("finetune", "import __main__ as train_script", "from t5x import utils")


FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
    "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
)
"""Lines of an example that starts from a checkpoint."""


MSH12 = Mistake(
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


@finds(MSH12)
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
    """Returns the total steps, the checkpoint's step and its path, if total steps count from the checkpoint's."""
    train = run_function(context, Mode.TRAIN)
    initial = initial_step(context)
    total = train.parameter("total_steps")
    if initial is None or total is None or not isinstance(total.value, int):
        return None
    if train.value("relative_steps") or missing_checkpoint(context) is not None:
        return None
    step, path = initial
    return total, step, path.value


CKP01 = Mistake(
    "CKP01",
    "fewer total steps than the checkpoint's step",
    why=(
        "TRAIN_STEPS counts from the very first step of pretraining. T5X restores the whole checkpoint before it stops "
        "with `Unexpected total_steps … < checkpoint step`."
    ),
    bad=training("TRAIN_STEPS = 20_000", *FROM_CHECKPOINT, at="TRAIN_STEPS = 20_000"),
    good=training("TRAIN_STEPS = 1_020_000", *FROM_CHECKPOINT),
)


@finds(CKP01)
def steps_below_checkpoint(context: Context) -> Iterator[Found]:
    """Finds fewer steps in all than the checkpoint has already done."""
    found = _steps(context)
    if found is not None and found[0].value < found[1]:
        total, step, path = found
        yield Found(
            f"{total.at} = {total.value} is below step {step} of the checkpoint {path}",
            total.at,
            f"count the checkpoint's steps too: {total.at} = {step + total.value:_} trains {total.value} more",
        )


CKP02 = Mistake(
    "CKP02",
    "no step left to train",
    why=(
        "The job succeeds within minutes, having trained nothing; T5X only logs a warning. With "
        "`train.run_eval_before_training = True` that is a way to evaluate, and no mistake."
    ),
    bad=training("TRAIN_STEPS = 1_000_000", *FROM_CHECKPOINT, at="TRAIN_STEPS = 1_000_000"),
    good=training("TRAIN_STEPS = 1_020_000", *FROM_CHECKPOINT),
)


@finds(CKP02)
def no_steps_left(context: Context) -> Iterator[Found]:
    """Finds exactly as many steps as the checkpoint has done."""
    found = _steps(context)
    if found is not None and found[0].value == found[1] and not _only_evaluates(context):
        total, step, path = found
        yield Found(
            f"{total.at} = {total.value} is the step of the checkpoint {path}: nothing would be trained",
            total.at,
            f"add the steps to train: {total.at} = {step:_} + N, written as one number",
        )


def _only_evaluates(context: Context) -> bool:
    """Returns whether the run evaluates before it trains, so that no step to train may be meant."""
    return bool(run_function(context, Mode.TRAIN).value("run_eval_before_training", False))
