"""Journeys begin only until a time that CI names: on a slow machine it skips the rest, and says how many."""

import os
import time

import pytest

VARIABLE = "T5X_HARNESS_JOURNEYS_UNTIL"
"""The time, in seconds since 1970, after which no journey begins; without it, all do."""

REASON = "CI had no time left for this journey"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins somewhere else each time, so that it is not always the same journeys that are left."""
    if until := os.environ.get(VARIABLE):
        first = int(until) % max(len(items), 1)
        items[:] = [*items[first:], *items[:first]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a journey that would begin too late."""
    until = os.environ.get(VARIABLE)
    if until and item.get_closest_marker("journey") and time.time() > float(until):
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many were left."""
    skipped = terminalreporter.stats.get("skipped", ())
    if left := sum(REASON in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"{left} journeys were not run: the time for them was over")
