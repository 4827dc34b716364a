"""The work that each stage claims, and the one place that decides whether it was done.

A stage is passed only if its work was counted while it was done: statements read, examples read, arrays planned,
programs compiled, train steps made, examples evaluated to finite numbers, lines written. Work that was not counted is
not inferred from the config or from the contents of objects. A stage without an error is therefore

* failed (``RUN02``) if it did none of its work, with the reason if it is known;
* not run, with the reason, if it did its work without a result that could be judged;
* passed otherwise.

A test that is marked ``smoke`` claims a run of T5X, so that only the stages that execute T5X count, not those that
read and plan; see :func:`work_of`.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5x_harness.spec import Finding, Measure, Outcome, RunResult, Severity, Stage, StageResult

NO_WORK = "RUN02"
GOING_ON = "going on with interrupted inference: --preempt=infer ends it on the way, and starts it again"
"""What the stage infer of a train config leaves open, and the stage resume checks if it is ordered to."""

REPEATED = "results"
"""The fact of the stage resume that an evaluation or inference was restarted, and what it left."""


def judged(result: StageResult, *, idle: str = "", unproved: str = "") -> StageResult:
    """Decides the outcome of a stage by its findings and its work.

    Args:
      result: the stage's result; its own outcome is ignored.
      idle: the reason why it did no work, if it did none; it makes clear how to fix that.
      unproved: the reason why the work that it did shows nothing; empty if it shows what the stage claims.
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
    """Marks a stage as not run, and adds the reason."""
    why = f"{result.stage}: not run, because {reason}"
    return dataclasses.replace(result, outcome=Outcome.NOT_RUN, not_checked=(why, *result.not_checked))


def proved_nothing(stages: Sequence[StageResult]) -> StageResult | None:
    """Finds the stage of a run whose work could not be judged, if no other executing stage could be judged either.

    Returns None if there is no such stage. A run whose training passed proves that much, no matter what its evaluation
    shows.
    """
    executing = [stage for stage in stages if stage.stage.executes]
    if any(stage.outcome is not Outcome.NOT_RUN for stage in executing):
        return None
    return next((stage for stage in executing if stage.exercised), None)


def work_of(result: RunResult, until: Stage | None = None) -> int:
    """Counts the work with which a run proves something for the test that requested it; 0 if it proves nothing.

    A whole run counts the work of its executing stages. A run up to a certain stage proves something as soon as that
    stage was reached, no matter what it found: a test may expect it to fail.

    Args:
      result: the run's result.
      until: the last stage, which the test requested by name; None if it requested a whole run.
    """
    run = [stage for stage in result.stages if stage.outcome is not Outcome.NOT_RUN]
    if until is not None:
        return sum(max(1, stage.exercised) for stage in run if stage.stage is until)
    return sum(stage.exercised for stage in run if stage.stage.executes)


Scalars = Mapping[str, Mapping[int, float]]
"""Values by TensorBoard folder and tag, then step."""


def loss_in_words(scalars: Scalars) -> str:
    """Returns the first and the last loss of training, or an empty text if the run wrote none."""
    losses = scalars.get("train/loss", {})
    if not losses:
        return ""
    return f"{losses[min(losses)]:.4g} at step {min(losses)}, {losses[max(losses)]:.4g} at {max(losses)}"


def loss_measures(scalars: Scalars) -> Iterator[Measure]:
    """Yields the first and the last value of each loss."""
    for tag, losses in _losses(scalars):
        for step in sorted({min(losses), max(losses)}):
            yield Measure("loss", losses[step], of=tag.removesuffix("/loss"), step=step)


def infinite_losses(stage: Stage, scalars: Scalars) -> Iterator[Finding]:
    """Yields one finding that names each NaN or infinite loss at its first step, if there are any."""
    bad = []
    for tag, losses in _losses(scalars):
        step = next((step for step in sorted(losses) if not math.isfinite(losses[step])), None)
        if step is not None:
            bad.append(f"{tag} is {losses[step]} at step {step}")
    if bad:
        fix = "lower the learning rate, or look for a division by zero in the model"
        yield Finding("RUN04", Severity.ERROR, stage, ", ".join(bad), fix=fix)


def undefined_metrics(stage: Stage, metrics: Iterable[Measure]) -> Iterator[Finding]:
    """Yields one warning that names each NaN or infinite metric, if there are any.

    It is not an error: a metric such as a correlation is undefined for the few predictions of a small run if they
    are all alike.
    """
    bad = [f"{each.name} of {each.of} is {each.value}" for each in metrics if not math.isfinite(each.value)]
    if bad:
        fix = "let the metric return a number for predictions that are all alike, or look for a division by zero in it"
        yield Finding("RUN04", Severity.WARNING, stage, ", ".join(bad), fix=fix)


def why_no_number(metrics: Iterable[Measure]) -> str:
    """Returns why metrics show nothing, if none of them is a finite number; otherwise an empty text."""
    return "" if any(math.isfinite(each.value) for each in metrics) else "it gave no finite number"


def _losses(scalars: Scalars) -> Iterator[tuple[str, Mapping[int, float]]]:
    return ((tag, losses) for tag, losses in scalars.items() if tag.endswith("/loss") and losses)
