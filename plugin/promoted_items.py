"""Promotion of the selected tests: their order, and items for the jobs of those with ``ship=True``.

Such a test runs in a job, and the reports that pytest makes there become its reports here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.promotion.marker import ResourcesError
from t5x_harness.promotion.settings import NOT_SENT
from t5x_harness.runs.stages import jobs_after_plans
from t5x_harness.upstream.pytest import skip_at_item

from .gin_items import StageItem
from .promotion import PROMOTION, JobItem, Promotion
from .reports import JOB_SECTION
from .session import SESSION, usage_errors

if TYPE_CHECKING:
    from t5x_harness.promotion.shipped import RepeatedReports
    from t5x_harness.promotion.shipped_test import ShippedTest

_DECIDED_THERE = frozenset({"skip", "skipif", "xfail"})


class ShippedItem(JobItem):
    """Replaces a test that runs in a job; none of the test's fixtures is set up here."""

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
                shipped.name,
                promotion.resources(shipped),
                session.settings.slice_name,
                promotion.targets.of(shipped),
            ),
            lambda: promotion.jobs,
        )
        return shipped

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Yields the test's marks, except those that pytest evaluates where the test runs."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in _DECIDED_THERE:
                yield node, mark

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Returns the location of the test itself."""
        return self.where

    def setup(self) -> None:
        """Waits for the job, whose reports of each phase become reports of this item."""
        from t5x_harness.promotion.jobs import JobNotSent
        from t5x_harness.promotion.shipped import ShipFailed

        self.test.submit()
        submit_early(self.session)  # other jobs with the same target, which may be known only now
        session = self.config.stash[SESSION]
        try:
            with session.working() as runs:
                self.test.wait(runs.folder, session.progress)
        except JobNotSent:
            skip_at_item(NOT_SENT)
        except ShipFailed as failure:  # the test has failed; only a fixture's error is an error in its setup
            self._failure = failure
        finally:
            self.user_properties += self.test.properties

    def runtest(self) -> None:
        """Reports the subtests of the test, which ran elsewhere.

        Raises:
          ShipFailed: the job left no outcome, or pytest cannot read a subtest's outcome.
        """
        if (reports := self._reports) is not None:
            reports.repeat_warnings()
            self._failure = self._failure or reports.repeat_subtests()
        if self._failure is not None:
            raise self._failure

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Returns the reason for a missing outcome, without a traceback."""
        return str(excinfo.value) if excinfo.value is self._failure else super().repr_failure(excinfo, style)

    def report(self, when: str) -> pytest.TestReport | None:
        """Returns the report that pytest made of a phase in the job, or None if no report counts."""
        return self._reports.phase(when) if self._reports is not None and self._failure is None else None

    @property
    def _reports(self) -> RepeatedReports | None:
        from t5x_harness.promotion.shipped import RepeatedReports

        return RepeatedReports(self.test.outcome, self) if self.test.outcome is not None else None


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replaces shipped tests by items for their jobs; moves cheap stages of promoted runs before their jobs.

    Args:
      config: pytest's config.
      items: the selected tests, which are changed in place.

    Raises:
      pytest.UsageError: the jobs of promoted tests have no target, or the configs have no machine.
    """
    promotion = config.stash[PROMOTION]
    if not promotion.active:
        return
    from t5x_harness.promotion.order import planned

    with usage_errors():
        promotion.check(items)
    items[:] = [_replaced(item, promotion) for item in items]
    stages = {at: item for at, item in enumerate(items) if isinstance(item, StageItem) and promotion.promotes(item)}
    with usage_errors("[tool.t5x_harness.tpu] and t5x_tpu: "):
        for item in stages.values():
            item.spec = planned(item.spec, promotion.resources(item))
    if not hasattr(config, "workerinput"):  # other workers of pytest-xdist run some of the tests
        arranged, early = jobs_after_plans([*stages.values()], promotion.settings.parallel)
        for at, item in zip(stages, arranged, strict=True):
            items[at] = item
        promotion.early = set(early)


def submit_early(session: pytest.Session) -> None:
    """Sends the jobs of later shipped tests: as many as are allowed at once, and only jobs whose target is known.

    Workers of pytest-xdist send none early, because each of them runs only a part of the tests.
    """
    promotion = session.config.stash[PROMOTION]
    if not promotion.active or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for item in [item for item in session.items if isinstance(item, ShippedItem) and item.test.is_pending]:
        if promotion.targets.is_known(item) and promotion.jobs.has_room:
            item.test.submit()


def _replaced(item: pytest.Item, promotion: Promotion) -> pytest.Item:
    """Returns the item that runs for a test: the test itself, unless it is promoted with ``ship=True``."""
    try:
        ships = promotion.promotes(item) and promotion.resources(item).ship and not hasattr(item, "spec")
    except ResourcesError:
        return item  # which fails because of the mistake in its marker
    return ShippedItem.of(item, promotion) if ships else item


def report_of(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Returns the report of a phase; for a shipped test, the one that pytest made in the job."""
    if not isinstance(item, ShippedItem):
        return report
    if (there := item.report(report.when)) is not None:
        there.user_properties += item.user_properties
        report = there
    if item.test.message:
        report.sections.append((JOB_SECTION, item.test.message))
    return report
