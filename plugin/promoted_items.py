"""What promotion makes of the selected tests: their order, and stand-ins for those with ``ship=True``.

These run in a job, and pytest's reports of them there are their reports here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.promotion.resources import ResourcesError
from t5x_harness.promotion.settings import NOT_SENT
from t5x_harness.upstream.pytest import skip_at_item

from .gin_items import StageItem
from .options import usage_errors
from .promotion import PROMOTION, JobItem, Promotion
from .reports import JOB_SECTION
from .session import SESSION

if TYPE_CHECKING:
    from t5x_harness.promotion.shipped_reports import RepeatedReports
    from t5x_harness.promotion.shipped_test import ShippedTest

_DECIDED_THERE = frozenset({"skip", "skipif", "xfail"})


class ShippedItem(JobItem):
    """Stands in the place of a test that runs elsewhere: none of its fixtures is set up here."""

    promotion: Promotion
    test: ShippedTest
    where: tuple[os.PathLike[str] | str, int | None, str]
    _failure: Exception | None

    @classmethod
    def of(cls, item: pytest.Item, promotion: Promotion) -> ShippedItem:
        """Returns the item for a test with ``ship=True``."""
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
            python_path=[Path(folder) for folder in session.settings.project.python_path],
            live=config.option.capture == "no",
        )
        shipped.test = ShippedTest(
            local,
            lambda: promotion.order(
                shipped.name, promotion.resources(shipped), session.settings.slice_name, promotion.targets.of(shipped)
            ),
            lambda: promotion.jobs,
        )
        return shipped

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Yields its marks, without those that depend on where it runs: pytest there looks at them."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in _DECIDED_THERE:
                yield node, mark

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Returns where the test itself stands."""
        return self.where

    def setup(self) -> None:
        """Waits for the job; what pytest there said of each phase is said here."""
        from t5x_harness.promotion.jobs import JobNotSent
        from t5x_harness.promotion.shipped import ShipFailed

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
        """Reports the subtests of the test, which ran elsewhere.

        Raises:
          ShipFailed: it left no outcome, or one of a subtest that pytest here cannot read.
        """
        if (reports := self._reports) is not None:
            reports.repeat_warnings()
            self._failure = self._failure or reports.repeat_subtests()
        if self._failure is not None:
            raise self._failure

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Returns why there is no outcome, without a traceback."""
        return str(excinfo.value) if excinfo.value is self._failure else super().repr_failure(excinfo, style)

    def report(self, when: str) -> pytest.TestReport | None:
        """Returns the report of a phase that pytest made in the job; None if there is none, or it does not count."""
        return self._reports.phase(when) if self._reports is not None and self._failure is None else None

    @property
    def _reports(self) -> RepeatedReports | None:
        from t5x_harness.promotion.shipped_reports import RepeatedReports

        return RepeatedReports(self.test.outcome, self) if self.test.outcome is not None else None


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts stand-ins in the places of shipped tests; brings the cheap stages of promoted runs before their jobs.

    Args:
      config: pytest's.
      items: the selected tests; changed.

    Raises:
      pytest.UsageError: nothing says where the jobs of promoted tests go, or what configs are to run on.
    """
    promotion = config.stash[PROMOTION]
    if not promotion.active:
        return
    from t5x_harness.promotion.order import planned
    from t5x_harness.runs.early_jobs import jobs_after_plans

    with usage_errors():
        promotion.check(items)
    items[:] = [_replaced(item, promotion) for item in items]
    stages = {at: item for at, item in enumerate(items) if isinstance(item, StageItem) and promotion.promotes(item)}
    with usage_errors("[tool.t5x_harness.tpu] and t5x_tpu: "):
        for item in stages.values():
            item.spec = planned(item.spec, promotion.resources(item))
    if not hasattr(config, "workerinput"):  # other workers of pytest-xdist take a part of the tests
        arranged, early = jobs_after_plans([*stages.values()], promotion.settings.parallel)
        for at, item in zip(stages, arranged, strict=True):
            items[at] = item
        promotion.early = set(early)


def submit_early(session: pytest.Session) -> None:
    """Sends jobs of shipped tests that follow, as many as may be there at once, and of which is known where they go.

    Not in a process of pytest-xdist, in which other workers take a part of the tests.
    """
    promotion = session.config.stash[PROMOTION]
    if not promotion.active or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for item in [item for item in session.items if isinstance(item, ShippedItem) and item.test.is_pending]:
        if promotion.targets.is_known(item) and promotion.jobs.has_room:
            item.test.submit()


def _replaced(item: pytest.Item, promotion: Promotion) -> pytest.Item:
    """Returns what runs in a test's place: the test itself, unless it is promoted and to be shipped."""
    try:
        ships = promotion.promotes(item) and promotion.resources(item).ship and not hasattr(item, "spec")
    except ResourcesError:
        return item  # which fails with the mistake of its marker
    return ShippedItem.of(item, promotion) if ships else item


def report_of(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Returns the report of a phase: of a shipped test pytest's own in the job, with what is known of the job."""
    if not isinstance(item, ShippedItem):
        return report
    if (there := item.report(report.when)) is not None:
        there.user_properties += item.user_properties
        report = there
    if item.test.message:
        report.sections.append((JOB_SECTION, item.test.message))
    return report
