"""The stage plan: the full-size run, in shapes only."""

from __future__ import annotations

from t5x_harness.execute.execution import Execution
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.plan.stage import plan


def plan_stage(run: Execution, report: StageReport) -> None:
    """Plans the run at full size."""
    assert run.resolved is not None
    run.planned = plan(run.resolved, run.slice, report)
