"""GIN24: learning rate schedules that do not know where a fine-tuning run begins."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.settings import Part, initial_step, run_part
from t5x_harness.spec import Finding, Mode, Severity

_HEAD = """\
from __gin__ import dynamic_registration
from t5x import utils
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/finetune.gin'
INITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_1000000'
utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'
"""


def _schedule(context: Context) -> Part | None:
    train = run_part(context, Mode.TRAIN)
    trainer = train.part("trainer_cls", "t5x.trainer.Trainer") if train is not None else None
    return trainer.part("learning_rate_fn", "t5x.utils.create_learning_rate_scheduler") if trainer is not None else None


class ScheduleNotShifted(Rule):
    """A warmup or a linear decay that is over before the run begins."""

    code = "GIN24"
    severity = Severity.WARNING
    title = "learning rate schedule that counts from the pretrained step"
    why = (
        "The schedule counts steps from the very first one of pretraining. Without `step_offset` a fine-tuning run "
        "begins far behind the warmup, and a linear decay has long come to its end."
    )
    bad = Example(_HEAD, at="utils.create_learning_rate_scheduler.factors")
    good = Example(_HEAD + "utils.create_learning_rate_scheduler.step_offset = 1_000_000\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a warning, or a note where a decay shows that going on with pretraining may be meant."""
        schedule, initial = _schedule(context), initial_step(context)
        factors = schedule.given("factors") if schedule is not None else None
        if schedule is None or initial is None or factors is None or not isinstance(factors.value, str):
            return
        warmup, decay = schedule.value("warmup_steps", 1000), schedule.value("decay_factor", 0.5)
        offset = schedule.value("step_offset", 0)
        if not all(isinstance(number, (int, float)) for number in (warmup, decay, offset)):
            return
        first = max(0, initial[0] - offset)
        names = {name.strip() for name in factors.value.split("*")}
        begins = f"the run begins at step {initial[0]} of the schedule (step_offset {offset})"
        fix = f"bind {factors.beside('step_offset')} = {initial[0]:_}"
        if "linear_decay" in names and first > 0 and 1 + decay * (warmup - first) <= 0:
            yield self.finding(
                f"{begins}, where linear_decay has come to its end: nothing would be learnt", factors.at, fix
            )
        elif "linear_warmup" in names and first >= warmup:
            yield self.finding(
                f"{begins}, behind the {warmup} steps of its linear_warmup: there would be no warmup",
                factors.at,
                fix,
                severity=Severity.WARNING if names <= {"constant", "linear_warmup"} else Severity.NOTE,
            )
