"""The header line and the table at the end."""

from __future__ import annotations

import pytest

from t5x_harness import __version__

from . import marks
from .session import HarnessSession


def header(session: HarnessSession) -> list[str]:
    """One line with versions, runtime, slice and mesh; nothing in a session that does not use the harness."""
    config = session.config
    used = session.options.gin_files or marks.selects_only(config.option.markexpr or "", marks.SMOKE)
    if not used and not any(str(arg).partition("::")[0].endswith(".gin") for arg in config.args):
        return []
    from t5x_harness.mesh import MeshRefused, plan_mesh
    from t5x_harness.slices import SliceError, get_slice

    try:
        tpu = get_slice(session.slice_name)
    except SliceError as error:
        raise pytest.UsageError(str(error)) from None
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
    """The table of the runs that were made in this process, failures explained below it."""
    results = tuple(session.results.values())
    if not results:
        return
    from t5x_harness.report import Report
    from t5x_harness.report.terminal import render

    reporter.section("t5x-harness")
    reporter.write(render(Report(results), width=reporter._tw.fullwidth))
    if session.kept_folder:
        reporter.write_line(f"logs and outputs are kept in {session.kept_folder}")
