"""A run that was ended from outside in the middle of a stage, as by a time limit of pytest's own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t5x_harness.findings.work import judged
from t5x_harness.runs.stages import left_out
from t5x_harness.spec import Finding, Outcome, RunResult, RunSpec, Severity, Stage, StageResult

if TYPE_CHECKING:
    from t5x_harness.runs.background import BackgroundRun
    from t5x_harness.runs.pipeline import Pipeline


class CutOffRun:
    """Answers in the place of such a run: with what was known of it by then, and with why it ended.

    Args:
      run: what was at work; it is closed.
      asked: the stage that was waited for; one before it may have been at work.
      why: what ended it, in words.
    """

    def __init__(self, run: Pipeline | BackgroundRun, asked: Stage, why: str) -> None:
        self.spec: RunSpec = run.spec
        self.stages = run.stages
        known = run.known()
        run.close()
        order = tuple(Stage)
        done = {each.stage: each for each in known.stages if each.outcome is not Outcome.NOT_RUN}
        before = [each for each in done.values() if order.index(each.stage) < order.index(asked)]
        at_work = next((stage for stage in self.stages if stage not in done), asked)
        at_work = min(at_work, asked, key=order.index)
        fix = "raise that limit, or let --t5x-timeout end stages, which says where one hangs"
        finding = Finding("RUN06", Severity.ERROR, at_work, f"{at_work} was ended from outside: {why}", fix=fix)
        failed = judged(StageResult(at_work, Outcome.NOT_RUN, (finding,)))
        self._result = dataclasses.replace(known, stages=(*before, failed))
        self._failed = failed

    @property
    def is_asked(self) -> bool:
        """Whether anyone wanted a result."""
        return True

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of a stage, which is not run any more if it was not by then."""
        known = {each.stage: each for each in self._result.stages}
        return known[stage] if stage in known else left_out(stage, self._failed.stage)

    def result(self) -> RunResult:
        """Returns the outcome of the stages."""
        return self._result

    def known(self, *, asked: bool = False) -> RunResult:
        """Returns the same."""
        del asked
        return self._result

    def close(self) -> None:
        """Does nothing: the run was closed when it was cut off."""
