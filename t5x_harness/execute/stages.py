"""The stages that a run's process runs: the stages before execution, and the table of all stages."""

from collections.abc import Callable, Mapping

from t5x_harness.execute.evaluate import eval_stage, infer_stage
from t5x_harness.execute.execution import Execution
from t5x_harness.execute.output import output_folder, sandbox
from t5x_harness.execute.traced_step import trace_step
from t5x_harness.execute.train import train_stage
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.plan.stage import plan
from t5x_harness.resolve.stage import resolve
from t5x_harness.spec import Reason, Stage


def resolve_stage(run: Execution, report: StageReport) -> None:
    """Parses the config, builds the objects that it names, and samples its data."""
    spec = run.spec
    registrations = run.open_config()
    assert run.config is not None
    assert run.standins is not None
    run.output = output_folder(run.config, spec.settings.model_dir, run.workspace)
    changes = sandbox(run.config, run.output.address, run.workspace, spec.settings.standins)
    report.changes += [change for change in changes if change.why is Reason.GIVEN]
    run.sandboxed = [change for change in changes if change.why is not Reason.GIVEN]
    run.resolved = resolve(run.config, run.slice, registrations, run.standins, report, spec.settings.read_seconds)


def plan_stage(run: Execution, report: StageReport) -> None:
    """Plans the run at full size, with shapes only."""
    assert run.resolved is not None
    run.planned = plan(run.resolved, run.slice, report)
    if run.planned is not None and not report.failed and (wrong := trace_step(run.planned)) is not None:
        report.add([wrong])


STAGES: Mapping[Stage, Callable[[Execution, StageReport], None]] = {
    Stage.RESOLVE: resolve_stage,
    Stage.PLAN: plan_stage,
    Stage.TRAIN: train_stage,
    Stage.EVAL: eval_stage,
    Stage.INFER: infer_stage,
}
