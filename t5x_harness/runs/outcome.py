"""Turns the results of a run's stages into those that its user sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import judged, proved_nothing
from t5x_harness.gin.program import GinProgram
from t5x_harness.lint.stage import on_own_lines
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.spec import Location, Outcome, RunSpec, Severity, Stage, StageResult


def for_its_user(result: StageResult, spec: RunSpec, config: GinProgram) -> StageResult:
    """Moves a stage's findings to the user's own lines, and applies the user's comments there and ``--strict``."""
    before = set(result.findings)
    findings = on_own_lines(result.findings, config)
    moved = [f for f in findings if f not in before and f.severity is not Severity.ERROR]
    _, silenced = split_silenced(moved, (), spec.cwd)
    shown = tuple(finding for finding in findings if finding not in silenced)
    result = dataclasses.replace(result, findings=shown, silenced=(*result.silenced, *silenced))
    if not spec.settings.strict:
        return result
    errors = (dataclasses.replace(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in shown)
    result = dataclasses.replace(result, findings=tuple(errors))
    return judged(result) if result.errors else result


def settled(results: Sequence[StageResult]) -> list[StageResult]:
    """Returns the stages without the doubts of one stage that a later one has settled."""
    stages = {result.stage: result for result in results}
    resolve, compiled = stages.get(Stage.RESOLVE), stages.get(Stage.AOT)
    if Stage.LINT in stages and resolve is not None and resolve.outcome is Outcome.PASSED:
        stages[Stage.LINT] = dataclasses.replace(stages[Stage.LINT], not_checked=())
    if compiled is not None and compiled.outcome is not Outcome.NOT_RUN:
        plan = stages[Stage.PLAN]
        left_open = tuple(each for each in plan.not_checked if each != TEMPORARIES_UNKNOWN)
        stages[Stage.PLAN] = dataclasses.replace(plan, not_checked=left_open)
    return [*stages.values()]


def reported(results: Sequence[StageResult]) -> tuple[StageResult, ...]:
    """Returns the stages of a run as its result lists them.

    A mistake that several stages found is reported by the last of them. Stages that a failure left out are listed;
    stages that a job does not have, or was not sent for, are not part of the run.
    """
    said: set[tuple[str, Location]] = set()
    once: list[StageResult] = []
    for result in reversed(results):
        findings = tuple(f for f in result.findings if f.location is None or (f.code, f.location) not in said)
        said.update((f.code, f.location) for f in result.findings if f.location is not None)
        once.insert(0, dataclasses.replace(result, findings=findings))
    return tuple(once) if any(stage.outcome is Outcome.FAILED for stage in once) else _as_far_as_run(once)


def _as_far_as_run(stages: Sequence[StageResult]) -> tuple[StageResult, ...]:
    """Returns the stages that were run; the stage before one that was not run takes over its reasons and findings.

    A stage that proved nothing is kept if the run has nothing else to show, which then has not passed.
    """
    run: list[StageResult] = []
    in_vain = proved_nothing(stages)
    for stage in stages:
        if stage.outcome is not Outcome.NOT_RUN or stage is in_vain or not run:
            run.append(stage)
            continue
        *before, last = run
        open_ = tuple(why for why in stage.not_checked if why not in last.not_checked)
        findings = (*last.findings, *stage.findings)
        run = [*before, dataclasses.replace(last, not_checked=(*last.not_checked, *open_), findings=findings)]
    return tuple(stage for stage in run if stage.outcome is not Outcome.NOT_RUN or stage is in_vain)
