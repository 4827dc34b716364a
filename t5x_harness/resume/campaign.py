"""A campaign: faults that a seed draws, each brought to the same training, and the result of each in a line."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.repeater import Repeatable
from t5x_harness.resume.restart import FIRST_RESTART, MOMENTS
from t5x_harness.spec import Ending, Fault, Finding, Mode, Moment, Severity

_GRACE = 1.0
"""The seconds until a process that hangs is killed: nothing would come of waiting longer."""


def draw(seed: int, times: int, training: Repeatable) -> list[Fault]:
    """Draws faults that can come to a training; the same seed draws the same ones.

    Args:
      seed: the seed.
      times: the number of faults.
      training: the training.
    """
    chance = random.Random(seed)
    steps = {moment: found for moment, found in _steps_of(training) if found}
    return [_drawn(chance, steps) for _ in range(times)]


def _steps_of(training: Repeatable) -> Iterator[tuple[Moment, Sequence[int]]]:
    """Yields each moment, with the steps at which it comes to a training."""
    every, last = range(training.first_step, training.last_step), training.last_step
    if training.mode is not Mode.TRAIN:
        yield from ((moment, every) for moment in MOMENTS[training.mode])
        return
    yield Moment.STEP, every
    yield Moment.SAVE, training.saves
    yield Moment.COMMIT, training.saves
    # After the evaluation at the last step, no step is left to compare.
    yield Moment.EVAL, [step for step in training.evals if step < last]
    yield Moment.RESTORE, every if training.saves else ()
    yield Moment.COMPILE, every


def _drawn(chance: random.Random, steps: dict[Moment, Sequence[int]]) -> Fault:
    moment, how = chance.choice(list(steps)), chance.choice(list(Ending))
    hangs = how in (Ending.STOP, Ending.GIL)
    fault = Fault(chance.choice(steps[moment]), moment, how)
    return dataclasses.replace(fault, grace=_GRACE) if hangs else fault


@dataclasses.dataclass(frozen=True)
class FaultOutcome:
    """The result of one fault.

    Attributes:
      fault: the fault.
      report: what was found.
      lost: the number of units that were made twice.
      unit: what is lost: steps of a training, or chunks of an inference.
    """

    fault: Fault
    report: StageReport
    lost: int = 0
    unit: str = "step"

    @property
    def failed(self) -> bool:
        """Whether anything was found that is a mistake."""
        return self.report.failed

    @property
    def line(self) -> str:
        """The fault, as it can be ordered again, and its result."""
        return f"{self.fault}: {self}"

    def __str__(self) -> str:
        errors = [finding.code for finding in self.report.findings if finding.severity is Severity.ERROR]
        others = [finding.code for finding in self.report.findings if finding.severity is not Severity.ERROR]
        parts = list(dict.fromkeys(errors or others)) or (["not compared"] if self.report.not_checked else ["equal"])
        parts += [f"lost {self.lost} {self.unit}{'s' * (self.lost != 1)}"] if self.lost else []
        facts = dict(self.report.facts)
        parts += ["lost an evaluation"] if "the evaluation" in facts.get("lost", "") else []
        parts += ["lost metrics (CKP26)"] if "CKP26" in facts.get("lost", "") else []
        parts += ["second restart (CKP26)"] if FIRST_RESTART in facts else []
        return ", ".join(parts)


def summarize(outcomes: Sequence[FaultOutcome], seed: int, into: StageReport) -> None:
    """Adds the outcomes of a campaign to the report of its stage.

    Args:
      outcomes: the outcome of each fault.
      seed: the seed of the campaign.
      into: the report.
    """
    for number, outcome in enumerate(outcomes, start=1):
        into.fact(f"fault {number}", outcome.line)
        into.add(_to_replay(finding, outcome.fault) for finding in outcome.report.findings)
        for doubt in outcome.report.not_checked:
            into.leave_open(doubt)
        into.exercised += outcome.report.exercised
    kinds = Counter("failed" if each.failed else str(each).partition(",")[0] for each in outcomes)
    found = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    into.fact("campaign", f"{len(outcomes)} faults of seed {seed}: {found}")


def _to_replay(finding: Finding, fault: Fault) -> Finding:
    """Adds to a mistake the fault that showed it, in the form in which it can be ordered again."""
    if finding.severity is not Severity.ERROR:
        return finding
    fix = f"{finding.fix}; " if finding.fix else ""
    return dataclasses.replace(finding, fix=f"{fix}this fault again: --preempt {fault}")
