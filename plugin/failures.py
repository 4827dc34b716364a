"""How a stage that failed is shown: by its findings, and in pytest's short summary by the first one's code."""

from __future__ import annotations

import os
import shutil

import pytest

from t5x_harness.spec import StageResult

from ._pytest_internals import ReprExceptionInfo, failure, terminal_columns

__all__ = ["COLUMNS", "columns_of", "failure_of", "width_of"]

COLUMNS = "t5x_harness_columns"
"""What a process of pytest-xdist is told of the terminal."""

_LOG_COLUMNS = 100


def failure_of(item: pytest.Item, result: StageResult) -> ReprExceptionInfo:
    """The failure of an item as pytest shows it."""
    from t5x_harness.report.one_line import failure_in_a_line
    from t5x_harness.report.terminal import stage_failure

    columns, width = columns_of(item.config)
    text = stage_failure(result, width=width, notes=item.config.get_verbosity() > 0)
    path, line, _ = item.reportinfo()
    is_cut = not any(map(os.environ.get, ("CI", "BUILD_NUMBER")))  # as pytest cuts lines
    summary = failure_in_a_line(result, columns - len(f"FAILED {item.nodeid} - ") if is_cut else None)
    return failure(text, os.fspath(path), (line or 0) + 1, summary)


def width_of(config: pytest.Config) -> int:
    """The columns to fill with what a failure says: those of the terminal, or some more in a log."""
    return columns_of(config)[1]


def columns_of(config: pytest.Config) -> tuple[int, int]:
    """The columns that pytest itself fills, and those for what a failure says."""
    if (given := getattr(config, "workerinput", {}).get(COLUMNS)) is not None:
        return tuple(given)  # a process of pytest-xdist has no terminal of its own
    reporter = config.pluginmanager.getplugin("terminalreporter")
    columns = terminal_columns(reporter) if reporter is not None else shutil.get_terminal_size().columns
    is_log = (reporter is None or not reporter.isatty) and "COLUMNS" not in os.environ
    return columns, max(columns, _LOG_COLUMNS) if is_log else columns
