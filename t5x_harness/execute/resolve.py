"""The stage resolve: the parsed config, the objects that it names, and a sample of its data."""

from __future__ import annotations

from t5x_harness.execute.execution import Execution
from t5x_harness.execute.sandbox import output_folder, sandbox
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resolve.stage import resolve
from t5x_harness.spec import Reason


def resolve_stage(run: Execution, report: StageReport) -> None:
    """Parses the config, builds what it names and samples its data."""
    spec = run.spec
    registrations = run.open_config()
    assert run.config is not None
    assert run.standins is not None
    run.output = output_folder(run.config, spec.settings.model_dir, run.workspace)
    changes = sandbox(run.config, run.output.address, run.workspace, spec.settings.standins)
    report.changes += [change for change in changes if change.why is Reason.GIVEN]
    run.sandboxed = [change for change in changes if change.why is not Reason.GIVEN]
    run.resolved = resolve(run.config, run.slice, registrations, run.standins, report, spec.settings.read_seconds)
