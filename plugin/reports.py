"""Runs and jobs in pytest's output: failures of items, their sections and properties, and the table at the end."""

import os
import shutil
import time
from collections.abc import Iterable

import pytest

from t5x_harness.findings.printable import without_secrets
from t5x_harness.spec import StageResult
from t5x_harness.upstream.pytest import colors, failure, junit_file, terminal_columns

from .promotion import PROMOTION, JobItem
from .session import SESSION, HarnessSession

COLUMNS = "t5x_harness_columns"
"""The key under which a process of pytest-xdist receives the terminal's columns."""

JOB_SECTION = "Vertex AI job"
"""The title of a section in the report of a promoted test."""

_LOG_COLUMNS = 100
_FIXTURES = frozenset({"t5x_run", "t5x_aot", "auxiliary_job"})
_JOBS = pytest.StashKey[list[str]]()


def failure_of(item: pytest.Item, result: StageResult) -> object:
    """Returns the failure of an item: all findings, and for the short summary the code of the first."""
    from t5x_harness.report.terminal import failure_in_a_line, stage_failure

    columns, width = columns_of(item.config)
    text = stage_failure(result, width=width, notes=item.config.get_verbosity() > 0)
    path, line, _ = item.reportinfo()
    is_cut = not any(map(os.environ.get, ("CI", "BUILD_NUMBER")))  # pytest cuts lines under the same condition
    summary = failure_in_a_line(result, columns - len(f"FAILED {item.nodeid} - ") if is_cut else None)
    return failure(text, os.fspath(path), (line or 0) + 1, summary)


def columns_of(config: pytest.Config) -> tuple[int, int]:
    """Returns the width that pytest fills, and the width for the text of a failure, which is larger in a log."""
    if (given := getattr(config, "workerinput", {}).get(COLUMNS)) is not None:
        return tuple(given)  # a process of pytest-xdist has no terminal
    reporter = config.pluginmanager.getplugin("terminalreporter")
    columns = terminal_columns(reporter) if reporter is not None else shutil.get_terminal_size().columns
    is_log = (reporter is None or not reporter.isatty) and "COLUMNS" not in os.environ
    return columns, max(columns, _LOG_COLUMNS) if is_log else columns


def record(item: pytest.Item, result: StageResult, properties: Iterable[tuple[str, str]]) -> None:
    """Puts properties where JUnit and other reporters find them, and a stage's job into a section of its test."""
    from t5x_harness.report.junit import job_lines

    item.user_properties += properties
    if lines := job_lines(result):
        item.stash.setdefault(_JOBS, []).append("\n".join(lines))


def add_job_sections(item: pytest.Item, report: pytest.TestReport) -> None:
    """Adds the jobs that :func:`record` noted to the report of a test's call."""
    if report.when == "call":
        report.sections += [(JOB_SECTION, text) for text in item.stash.get(_JOBS, [])]


def without_secrets_in(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Masks the secrets in the report of a run or a job, or of a test that has one: its failure, output, properties.

    Reports of other tests are theirs.
    """
    if not (isinstance(item, JobItem) or _FIXTURES.intersection(getattr(item, "fixturenames", ()))):
        return report
    shown = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
    masked = without_secrets(shown)
    if masked == shown:
        return report
    remade: pytest.TestReport = item.config.hook.pytest_report_from_serializable(config=item.config, data=masked)
    return remade


def record_versions(config: pytest.Config) -> None:
    """Adds the versions of all runs to the test suite of ``--junitxml``, if it is requested and runs were made."""
    session = config.stash[SESSION]
    if (xml := junit_file(config)) is not None and session.begun is not None and (runs := session.begun.results.by_run):
        from t5x_harness.report.junit import version_properties

        for name, value in version_properties(session.settings.runtime, (spec.slice for spec in runs)):
            xml.add_global_property(name, value)


def write_runs(reporter: pytest.TerminalReporter, session: HarnessSession) -> None:
    """Writes the table of the runs, with warnings and notes below; pytest shows the failures above.

    In a GitHub workflow, annotations for the findings follow, and the step's summary page gets everything.
    """
    runs = session.begun
    if runs is None or not runs.results.by_run or session.is_worker:
        return
    from t5x_harness.report.github import append_step_summary, commands_where_wanted
    from t5x_harness.report.terminal import render, render_brief

    report = runs.results.report(time.perf_counter() - session.started)
    width, color = terminal_columns(reporter), colors(reporter)
    if reporter.verbosity >= -1:
        reporter.section("t5x-harness")
        failures = session.config.option.tbstyle != "no"  # shown above, with the failed tests
        if reporter.verbosity > 0:
            reporter.write(render(report, width=width, color=color, notes=True, shown_above=failures))
        else:
            reporter.write(render_brief(report, width=width, color=color))
        for line in runs.results.kept_lines:
            reporter.write_line(line)
        for line in runs.results.refusals:
            reporter.write_line(line, yellow=True)
    for command in commands_where_wanted(report, session.settings.options.github_annotations, os.environ):
        reporter.write_line(command)
    append_step_summary(report, os.environ)


def write_jobs(reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Writes the jobs that ``--t5x-tpu-dry-run`` only prints, and the state of those that outlive the session."""
    if config.stash[SESSION].is_worker:  # the controller reports the jobs
        return
    promotion = config.stash[PROMOTION]
    for text in promotion.shown:
        reporter.section("TPU job, not sent")
        reporter.write_line(text)
    for line in promotion.left:
        reporter.write_line(line, yellow=True)
