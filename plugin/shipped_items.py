"""Tests with ``ship=True``: they run in a job, and pytest's reports of them there are their reports here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.promotion.resources import ResourcesError

from ._pytest_internals import skip_at_item
from .job_sections import JOB_SECTION
from .promotion import NOT_SENT, PROMOTION, Promotion
from .session import SESSION

if TYPE_CHECKING:
    from t5x_harness.promotion.shipped import ShippedOutcome
    from t5x_harness.promotion.shipped_test import ShippedTest

__all__ = ["ShippedItem", "replaced", "report_of", "submit_early"]

_DECIDED_THERE = frozenset({"skip", "skipif", "xfail"})


class ShippedItem(pytest.Item):
    """Stands in the place of a test that runs elsewhere: none of its fixtures is set up here."""

    promotion: Promotion
    test: ShippedTest
    where: tuple[os.PathLike[str] | str, int | None, str]
    _failure: Exception | None

    @classmethod
    def of(cls, item: pytest.Item, promotion: Promotion) -> ShippedItem:
        """The item for a test with ``ship=True``."""
        from t5x_harness.promotion.shipped_test import LocalTest, ShippedTest

        assert item.parent is not None
        config, session = item.config, item.config.stash[SESSION]
        shipped: ShippedItem = cls.from_parent(item.parent, name=item.name)
        shipped.own_markers = item.own_markers
        shipped.keywords.update(item.keywords)
        shipped.promotion, shipped.where, shipped._failure = promotion, item.reportinfo(), None
        local = LocalTest(
            name=item.name,
            nodeid=shipped.nodeid,
            root=config.rootpath,
            file=shipped.path,
            globs=promotion.resources(item).files,
            ini=config.inipath,
            python_path=[Path(folder) for folder in session.project.python_path],
            live=config.option.capture == "no",
        )
        shipped.test = ShippedTest(
            local,
            lambda: promotion.order(shipped, session.slice_name, promotion.target_of(shipped)),
            lambda: promotion.jobs,
        )
        return shipped

    @property
    def sections(self) -> list[tuple[str, str]]:
        """What reports of it say of its job."""
        return [(JOB_SECTION, self.test.message)] if self.test.message else []

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Its marks, without those that depend on where it runs: pytest there looks at them."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in _DECIDED_THERE:
                yield node, mark

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where the test itself stands."""
        return self.where

    def setup(self) -> None:
        """Waits for the job; what pytest there said of each phase is said here."""
        from t5x_harness.promotion.jobs import JobNotSent
        from t5x_harness.promotion.shipped_test import ShipFailed

        self.test.submit()
        submit_early(self.session)  # those that go where this one goes, which may be known only now
        session = self.config.stash[SESSION]
        try:
            with session.working() as runs:
                self.test.wait(runs.folder, session.progress)
        except JobNotSent:
            skip_at_item(NOT_SENT)
        except ShipFailed as failure:  # a test that failed: only what its fixtures do is an error of its setup
            self._failure = failure
        finally:
            self.user_properties += self.test.properties

    def runtest(self) -> None:
        """It ran elsewhere; its subtests there are told of here.

        Raises:
          ShipFailed: it left no outcome, or one of a subtest that pytest here cannot read.
        """
        if self.test.outcome is not None:
            self._report_warnings(self.test.outcome)
            if self._failure is None:
                self._report_subtests(self.test.outcome)
        if self._failure is not None:
            raise self._failure

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Why there is no outcome, without a traceback."""
        return str(excinfo.value) if excinfo.value is self._failure else super().repr_failure(excinfo, style)

    def phase(self, when: str) -> Mapping[str, Any] | None:
        """Pytest's report of a phase there; None if there is none."""
        reports = self.test.outcome.reports if self.test.outcome is not None and self._failure is None else ()
        # The last one: those of subtests, and of attempts that a plugin repeats, come before the test's own.
        return next((report for report in reversed(reports) if report["when"] == when), None)

    def _report_subtests(self, outcome: ShippedOutcome) -> None:
        """Reports each subtest as pytest does, while the test's own call lasts."""
        from t5x_harness.promotion.shipped_test import ShipFailed

        own = self.phase("call")
        for data in outcome.reports:
            if data is own or data.get("_report_type") != "SubTestReport":
                continue
            if (report := _read(self, data)) is not None:
                self.ihook.pytest_runtest_logreport(report=report)
            elif data["outcome"] == "failed":
                self._failure = ShipFailed(
                    f"{self.name}: a subtest failed in the job, and pytest here knows no subtests: take the release of "
                    "pytest that the image has"
                )

    def _report_warnings(self, outcome: ShippedOutcome) -> None:
        """Has pytest count what the test warned of there among this session's warnings."""
        from t5x_harness.promotion.shipped_warnings import from_json

        for value in outcome.warnings:
            warning = from_json(value, self.config.rootpath)
            told = {"warning_message": warning, "when": "runtest", "nodeid": self.nodeid, "location": None}
            self.ihook.pytest_warning_recorded.call_historic(kwargs=told)


def submit_early(session: pytest.Session) -> None:
    """Sends jobs of shipped tests that follow, as many as may be there at once, and of which is known where they go.

    Not in a process of pytest-xdist, in which other workers take a part of the tests.
    """
    promotion = session.config.stash[PROMOTION]
    if not promotion.active or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for item in session.items:
        if (
            isinstance(item, ShippedItem)
            and item.test.is_pending
            and promotion.knows_target(item)
            and promotion.jobs.has_room
        ):
            item.test.submit()


def replaced(item: pytest.Item, promotion: Promotion) -> pytest.Item:
    """What runs in a test's place: the test itself, unless it is promoted and to be shipped."""
    try:
        ships = promotion.promotes(item) and promotion.resources(item).ship and not hasattr(item, "spec")
    except ResourcesError:
        return item  # which fails with the mistake of its marker
    return ShippedItem.of(item, promotion) if ships else item


def report_of(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """The report of a phase: for a shipped test the one that pytest made in the job, with what is known of the job."""
    if not isinstance(item, ShippedItem):
        return report
    report.sections += item.sections
    data = item.phase(report.when or "")
    if data is None:
        return report
    there = _read(item, data)
    if there is None:
        return report
    there.user_properties += item.user_properties
    there.sections += item.sections
    return there


def _read(item: ShippedItem, data: Mapping[str, Any]) -> pytest.TestReport | None:
    """A report that pytest made in the job, as one of the item here; None if pytest here does not know its kind."""
    there: pytest.TestReport | None = item.config.hook.pytest_report_from_serializable(
        config=item.config, data=dict(data)
    )
    if there is None:
        return None
    there.nodeid, there.location = item.nodeid, item.location
    if isinstance(there.longrepr, list):  # why it was skipped: JSON has no tuples, and the file is the one here
        file, line, reason = there.longrepr
        there.longrepr = (str(item.path) if Path(file).name == item.path.name else file, line, reason)
    there.user_properties = [*map(tuple, there.user_properties)]
    there.sections = [*map(tuple, there.sections)]
    return there
