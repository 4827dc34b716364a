"""The header line and the table at the end."""

from __future__ import annotations

import pytest

from t5x_harness import __version__

from .session import HarnessSession


def header(session: HarnessSession) -> list[str]:
    """One line with versions, runtime, slice and mesh; nothing in a session that does not use the harness."""
    if not session.expects_runs and not session.options.gin_files:
        return []
    from t5x_harness.mesh import MeshRefused, plan_mesh
    from t5x_harness.slices import get_slice

    tpu = get_slice(session.slice_name)
    try:
        mesh = f"mesh {plan_mesh(tpu, num_partitions=1)} at num_partitions=1"
    except MeshRefused:
        mesh = "no mesh without a model_parallel_submesh"
    runtime = session.runtime
    return [
        f"t5x-harness {__version__}: {runtime.kind} T5X {runtime.version}, slice {tpu.name} as {tpu.num_devices} CPU "
        f"devices, {mesh}"
    ]


def write(reporter: pytest.TerminalReporter, session: HarnessSession) -> None:
    """The table of the runs; what failed is told above it, so below it stands what did not fail, but matters."""
    results = tuple(session.results.values())
    if not results or reporter.verbosity < -1:
        return
    from t5x_harness.report import Report
    from t5x_harness.report.brief import render_brief
    from t5x_harness.report.terminal import render

    writer = reporter._tw  # the public methods colour nothing but whole lines
    width, color = writer.fullwidth, writer.hasmarkup
    reporter.section("t5x-harness")
    report = Report(results)
    text = render(report, width=width, color=color) if reporter.verbosity > 0 else None
    reporter.write(text or render_brief(report, width=width, color=color))
    kept = session.kept
    if len(kept) == 1:
        reporter.write_line(f"log and output of the failed run are kept in {kept[0]}")
    else:
        for parent in dict.fromkeys(folder.parent for folder in kept):
            reporter.write_line(f"logs and outputs of the failed runs are kept in {parent}")
