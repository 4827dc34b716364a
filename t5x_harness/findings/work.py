"""What each stage claims to have done, and the one place that decides whether it was seen to be done.

A stage is passed only if its work was counted while it was done: statements read, examples read, arrays planned,
programs compiled, train steps made, examples evaluated to finite numbers, lines written. What was not counted is not
inferred from the config or from what objects hold. A stage without an error is therefore

* failed (``RUN02``) if it did none of its work, with the reason if it knows one;
* not run, with the reason, if it did its work and nothing that could be judged resulted from it;
* passed otherwise.

A test that is marked ``smoke`` claims a run of T5X, so that only the stages that execute it count, and not those that
read and plan; see :func:`work_of`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_harness.spec import Finding, Outcome, RunResult, Severity, Stage, StageResult

NO_WORK = "RUN02"


def judged(result: StageResult, *, idle: str = "", unproved: str = "") -> StageResult:
    """Decides the outcome of a stage by its findings and its work.

    Args:
      result: the stage; its own outcome is not looked at.
      idle: why it did no work, if it did none, and how that is fixed is clear from it.
      unproved: why the work that it did shows nothing; empty if it shows what the stage claims.
    """
    if not result.errors and not result.exercised:
        reason = idle or f"{result.stage} did no work (0 {result.stage.counts})"
        fix = "give the stage steps or examples to work on"
        finding = Finding(NO_WORK, Severity.ERROR, result.stage, f"{reason}, so nothing is proved", fix=fix)
        result = dataclasses.replace(result, findings=(*result.findings, finding))
    if result.errors:
        return dataclasses.replace(result, outcome=Outcome.FAILED)
    if unproved:
        return not_run(result, unproved)
    return dataclasses.replace(result, outcome=Outcome.PASSED)


def not_run(result: StageResult, reason: str) -> StageResult:
    """Marks a stage as not run, and says why."""
    why = f"{result.stage}: not run, because {reason}"
    return dataclasses.replace(result, outcome=Outcome.NOT_RUN, not_checked=(why, *result.not_checked))


def proved_nothing(stages: Sequence[StageResult]) -> StageResult | None:
    """Finds the stage of a run whose work could not be judged, if no other executing stage could be judged either.

    Returns None if there is no such stage. A run whose training passed proves that much, whatever its evaluation shows.
    """
    executing = [stage for stage in stages if stage.stage.executes]
    if any(stage.outcome is not Outcome.NOT_RUN for stage in executing):
        return None
    return next((stage for stage in executing if stage.exercised), None)


def work_of(result: RunResult, until: Stage | None = None) -> int:
    """Counts what a run proves for the test that asked for it; 0 if nothing.

    A whole run proves what its executing stages did. A run up to a certain stage proves something as soon as that stage
    was reached, whatever it found: a test may expect it to fail.

    Args:
      result: the run.
      until: the last stage that the test asked for by name; None if it asked for a whole run.
    """
    run = [stage for stage in result.stages if stage.outcome is not Outcome.NOT_RUN]
    if until is not None:
        return sum(max(1, stage.exercised) for stage in run if stage.stage is until)
    return sum(stage.exercised for stage in run if stage.stage.executes)
