"""What pytest in a job said of a shipped test, said by pytest here: the reports of its phases, and its warnings.

Pytest serializes its reports, and has nothing for what a test warns of besides.
"""

from __future__ import annotations

import builtins
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.promotion.shipped import ShipFailed, ShippedOutcome


class RepeatedReports:
    """The reports and warnings of an outcome, as those of the item here that stands for its test.

    Args:
      outcome: that the job left.
      item: stands for the test.
    """

    def __init__(self, outcome: ShippedOutcome, item: pytest.Item) -> None:
        self._outcome = outcome
        self._item = item

    def phase(self, when: str) -> pytest.TestReport | None:
        """Returns the report of a phase; None if there is none."""
        # The last one: those of subtests, and of attempts that a plugin repeats, come before the test's own.
        found = next((report for report in reversed(self._outcome.reports) if report["when"] == when), None)
        return self._here(found) if found is not None else None

    def repeat_subtests(self) -> ShipFailed | None:
        """Reports each subtest as pytest does; returns a failure if one failed of which pytest here knows nothing."""
        failed = None
        for report in self._outcome.reports:
            if report.get("_report_type") == "SubTestReport":
                if (here := self._here(report)) is not None:
                    self._item.ihook.pytest_runtest_logreport(report=here)
                elif report["outcome"] == "failed":
                    failed = ShipFailed(
                        f"{self._item.name}: a subtest failed in the job, and pytest here knows no subtests: take the "
                        "release of pytest that the image has"
                    )
        return failed

    def repeat_warnings(self) -> None:
        """Has pytest count what the test warned of among this session's warnings."""
        for value in self._outcome.warnings:
            warning = warning_from_json(value, self._item.config.rootpath)
            recorded = {"warning_message": warning, "when": "runtest", "nodeid": self._item.nodeid, "location": None}
            self._item.ihook.pytest_warning_recorded.call_historic(kwargs=recorded)

    def _here(self, report: Mapping[str, Any]) -> pytest.TestReport | None:
        """Returns a report as one of the item here; None if pytest here does not know its kind."""
        item, longrepr = self._item, report["longrepr"]
        if isinstance(longrepr, list):  # why it was skipped: JSON has no tuples, and the file is the one here
            file, line, reason = longrepr
            longrepr = (str(item.path) if Path(file).name == item.path.name else file, line, reason)
        pairs = {name: [*map(tuple, report[name])] for name in ("user_properties", "sections")}
        data = {**report, **pairs, "nodeid": item.nodeid, "location": item.location, "longrepr": longrepr}
        here: pytest.TestReport | None = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        return here


def warning_to_json(warning: warnings.WarningMessage, folder: Path) -> dict[str, Any]:
    """Returns a warning as JSON has it.

    Args:
      warning: as it was caught.
      folder: that the test was unpacked into; files in it are named relative to it.
    """
    file = Path(os.path.abspath(warning.filename))
    return {
        "category": warning.category.__name__,
        "text": str(warning.message),
        "file": str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file),
        "line": warning.lineno,
    }


def warning_from_json(value: Mapping[str, Any], folder: Path) -> warnings.WarningMessage:
    """Returns the inverse of :func:`warning_to_json`.

    Nothing is imported for a class that a library there has of its own: its name comes before the text.

    Args:
      value: of :func:`warning_to_json`.
      folder: that the test was packed from.
    """
    name, text = value["category"], value["text"]
    category = getattr(builtins, name, None) or getattr(pytest, name, None)
    if not isinstance(category, type) or not issubclass(category, Warning):
        category, text = UserWarning, f"{name}: {text}"
    return warnings.WarningMessage(text, category, str(folder / value["file"]), int(value["line"]))
