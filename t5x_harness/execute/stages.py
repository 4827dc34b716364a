"""The stages that a run's process runs, each by the function of its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from t5x_harness.execute.evaluate import eval_stage
from t5x_harness.execute.execution import Execution
from t5x_harness.execute.infer import infer_stage
from t5x_harness.execute.plan import plan_stage
from t5x_harness.execute.resolve import resolve_stage
from t5x_harness.execute.train import train_stage
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.spec import Stage

STAGES: Mapping[Stage, Callable[[Execution, StageReport], None]] = {
    Stage.RESOLVE: resolve_stage,
    Stage.PLAN: plan_stage,
    Stage.TRAIN: train_stage,
    Stage.EVAL: eval_stage,
    Stage.INFER: infer_stage,
}
