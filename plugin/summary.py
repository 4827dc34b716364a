"""The header line, and the table at the end with what goes beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from t5x_harness import __version__

from . import collection
from ._pytest_internals import colors, terminal_columns
from .options import is_annotated
from .promotion import Promotion
from .session import HarnessSession

if TYPE_CHECKING:
    from t5x_harness.report import Report


def header(session: HarnessSession) -> list[str]:
    """One line with versions, runtime and slice; only what is left out in a session that does not use them."""
    left_out = [line] if (line := collection.left_out(session.config, session)) else []
    if not session.expects_runs:
        return left_out
    from t5x_harness.slices.slice import get_slice

    tpu = get_slice(session.slice_name)
    runtime = session.runtime
    return [
        f"t5x-harness {__version__}: {runtime.kind} T5X {runtime.version}, slice {tpu.name} "
        f"({tpu.num_devices} devices), emulated on CPU",
        *left_out,
    ]


def write(reporter: pytest.TerminalReporter, session: HarnessSession) -> None:
    """The table of the runs; what failed is told above it, so below it stands what did not fail, but matters.

    In a GitHub workflow the findings follow as annotations, and the step's summary page gets all of it.
    """
    runs = session.begun
    if runs is None or not runs.results.by_run or hasattr(session.config, "workerinput"):  # whose output nobody reads
        return
    from t5x_harness.report.github import append_step_summary
    from t5x_harness.workers import NOT_KEPT

    report = session.report()
    if reporter.verbosity >= -1:
        _write_table(reporter, report)
        _write_kept(reporter, runs.results.kept)
        for refusal in runs.results.refusals:
            reporter.write_line(f"{NOT_KEPT}: {refusal}", yellow=True)
    if is_annotated(session.options.github_annotations, os.environ):
        from t5x_harness.report.github import annotation_commands

        for command in annotation_commands(report):
            reporter.write_line(command)
    append_step_summary(report, os.environ)


def write_jobs(reporter: pytest.TerminalReporter, promotion: Promotion) -> None:
    """The jobs that ``--t5x-tpu-dry-run`` only prints, and what became of those that had not ended with the session."""
    if hasattr(promotion.config, "workerinput"):  # the controller tells it
        return
    for text in promotion.shared.shown:
        reporter.section("TPU job, not sent")
        reporter.write_line(text)
    for line in promotion.shared.left:
        reporter.write_line(line, yellow=True)


def _write_table(reporter: pytest.TerminalReporter, report: Report) -> None:
    from t5x_harness.report.brief import render_brief
    from t5x_harness.report.terminal import render

    width, color = terminal_columns(reporter), colors(reporter)
    reporter.section("t5x-harness")
    if reporter.verbosity > 0:
        told = reporter.config.option.tbstyle != "no"  # where tests failed, above
        reporter.write(render(report, width=width, color=color, notes=True, told=told))
    else:
        reporter.write(render_brief(report, width=width, color=color))


def _write_kept(reporter: pytest.TerminalReporter, kept: Sequence[Path]) -> None:
    if len(kept) == 1:
        reporter.write_line(f"log and output of the failed run are kept in {kept[0]}")
    else:
        for parent in dict.fromkeys(folder.parent for folder in kept):
            reporter.write_line(f"logs and outputs of the failed runs are kept in {parent}")
