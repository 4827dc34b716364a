"""The stages of a run: which ones it has, and why one is not run."""

from __future__ import annotations

from collections.abc import Iterable

from t5x_harness.findings.work import not_run
from t5x_harness.spec import Outcome, Reason, RunSpec, Stage, StageResult


class StageFailed(Exception):
    """A stage of a run failed; the result says why."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(f"{result.stage} failed")
        self.result = result


def stages_of(spec: RunSpec) -> tuple[Stage, ...]:
    """Returns the stages of a run, in order: only lint if its config shows no mode.

    The last stage that a run asks for need not be one of its mode's: an infer config has nothing to train.
    """
    if spec.mode is None:
        return (Stage.LINT,)
    stages = [stage for stage in Stage if not stage.executes or spec.mode in stage.modes]
    order = tuple(Stage)
    return tuple(
        stage
        for stage in stages
        if (stage is not Stage.AOT or spec.settings.aot is not None)
        and (spec.settings.until is None or order.index(stage) <= order.index(spec.settings.until))
    )


def left_out(stage: Stage, failed: Stage) -> StageResult:
    """Makes the result of a stage that is not run because another one failed."""
    return not_run(StageResult(stage, Outcome.NOT_RUN), f"{failed} failed")


def standins_of(results: Iterable[StageResult]) -> tuple[str, ...]:
    """Returns what these stages generated stand-ins for, in words."""
    return tuple(f"{c.binding}: {c.before}" for r in results for c in r.changes if c.why is Reason.STANDIN)
