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
    from t5x_harness.promotion.order import JobOrder
    from t5x_harness.promotion.shipped import ShippedOutcome
    from t5x_harness.vertex.launching import LaunchedJob

__all__ = ["ShippedItem", "replaced", "report_of", "submit_early"]

_DECIDED_THERE = frozenset({"skip", "skipif", "xfail"})


class ShipFailed(Exception):
    """A job gave no outcome of its test; the message says why."""


class ShippedItem(pytest.Item):
    """Stands in the place of a test that runs elsewhere: none of its fixtures is set up here."""

    promotion: Promotion
    globs: tuple[str, ...]
    where: tuple[os.PathLike[str] | str, int | None, str]

    @classmethod
    def of(cls, item: pytest.Item, promotion: Promotion) -> ShippedItem:
        """The item for a test with ``ship=True``."""
        assert item.parent is not None
        shipped: ShippedItem = cls.from_parent(item.parent, name=item.name)
        shipped.own_markers = item.own_markers
        shipped.keywords.update(item.keywords)
        shipped.promotion, shipped.where = promotion, item.reportinfo()
        shipped.globs = promotion.resources(item).files
        shipped._sent = shipped._problem = shipped._outcome = shipped._failure = None
        shipped._told = ""
        return shipped

    _sent: LaunchedJob | None
    _problem: Exception | None
    _outcome: ShippedOutcome | None
    _failure: ShipFailed | None
    _told: str

    @property
    def sections(self) -> list[tuple[str, str]]:
        """What reports of it say of its job."""
        return [(JOB_SECTION, self._told)] if self._told else []

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Its marks, without those that depend on where it runs: pytest there looks at them."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in _DECIDED_THERE:
                yield node, mark

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where the test itself stands."""
        return self.where

    @property
    def waits(self) -> bool:
        """Whether its job is still to be sent."""
        return self._sent is None and self._problem is None

    def send(self) -> None:
        """Sends the job; why it cannot be sent is kept for :meth:`setup`."""
        from t5x_harness.promotion.jobs import REFUSALS, JobNotSent
        from t5x_harness.promotion.packing import PackingError
        from t5x_harness.promotion.shipping import ship

        if not self.waits:
            return
        try:
            shipment = ship(self.nodeid, *self._packed())
            self._sent = self.promotion.jobs.send(shipment.job, shipment.staged)
        except (*REFUSALS, JobNotSent, PackingError, ResourcesError) as error:
            self._problem = error

    def setup(self) -> None:
        """Waits for the job; what pytest there said of each phase is said here."""
        from t5x_harness.promotion.jobs import JobNotSent

        self.send()
        submit_early(self.session)  # those that go where this one goes, which may be known only now
        if isinstance(self._problem, JobNotSent):
            skip_at_item(NOT_SENT)
        try:
            if self._sent is None:
                raise ShipFailed(f"{self.name} was not sent as a job: {self._problem}")
            self._outcome = self._followed(self._sent)
            self._require_tpu(self._sent, self._outcome)
        except ShipFailed as failure:  # a test that failed: only what its fixtures do is an error of its setup
            self._failure = failure

    def runtest(self) -> None:
        """It ran elsewhere; its subtests there are told of here.

        Raises:
          ShipFailed: it left no outcome, or one of a subtest that pytest here cannot read.
        """
        if self._outcome is not None:
            self._tell_warnings(self._outcome)
        if self._failure is None:
            self._tell_subtests()
        if self._failure is not None:
            raise self._failure

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Why there is no outcome, without a traceback."""
        if isinstance(excinfo.value, ShipFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def phase(self, when: str) -> Mapping[str, Any] | None:
        """Pytest's report of a phase there; None if there is none."""
        reports = self._outcome.reports if self._outcome is not None and self._failure is None else ()
        # The last one: those of subtests, and of attempts that a plugin repeats, come before the test's own.
        return next((report for report in reversed(reports) if report["when"] == when), None)

    def _tell_subtests(self) -> None:
        """Reports each subtest as pytest does, while the test's own call lasts."""
        own = self.phase("call")
        for data in self._outcome.reports if self._outcome is not None else ():
            if data is own or data.get("_report_type") != "SubTestReport":
                continue
            if (report := _read(self, data)) is not None:
                self.ihook.pytest_runtest_logreport(report=report)
            elif data["outcome"] == "failed":
                self._failure = ShipFailed(
                    f"{self.name}: a subtest failed in the job, and pytest here knows no subtests: take the release of "
                    "pytest that the image has"
                )

    def _tell_warnings(self, outcome: ShippedOutcome) -> None:
        """Has pytest count what the test warned of there among this session's warnings."""
        from t5x_harness.promotion.shipped_warnings import from_json

        for value in outcome.warnings:
            warning = from_json(value, self.config.rootpath)
            told = {"warning_message": warning, "when": "runtest", "nodeid": self.nodeid, "location": None}
            self.ihook.pytest_warning_recorded.call_historic(kwargs=told)

    def _tell_devices(self, outcome: ShippedOutcome) -> None:
        """Says in the test's section and properties what it ran on."""
        tpu, emulated = self._order().machine.is_tpu, self.promotion.settings.emulated
        devices, versions = outcome.ran_on.about(tpu=tpu, emulated=emulated), outcome.about_versions()
        self.user_properties += [("t5x.devices", devices), ("t5x.versions", versions)]
        self._told += f"\ndevices: {devices}\nversions: {versions}"

    def _require_tpu(self, launched: LaunchedJob, outcome: ShippedOutcome) -> None:
        """Lets no test pass that a TPU was paid for, and that ran on the CPU beside it."""
        machine = self._order().machine
        if machine.is_tpu and outcome.ran_on.fell_back and not self.promotion.settings.emulated and not outcome.failed:
            message, fix = outcome.ran_on.no_tpu(launched.submitted.display_name, str(machine))
            meant = "A test that is meant for the CPU says so with JAX_PLATFORMS=cpu"
            raise ShipFailed(f"{self.name}: {message}\n    fix: {fix}. {meant}")

    def _packed(self) -> Iterator[Any]:
        """The archive, the order, pytest's ini file, the folders to import from, and whether output is captured."""
        from t5x_harness.promotion.packing import listed_files, pack

        root, ini = self.config.rootpath, self.config.inipath
        files = listed_files(root, self.path, self.globs, ini)
        archive = pack(root, files)
        session = self.config.stash[SESSION]
        folders = [Path(folder) for folder in session.project.python_path]
        yield archive
        yield self._order()
        yield ini.relative_to(root).as_posix() if ini in files and ini is not None else None
        yield [folder.relative_to(root).as_posix() for folder in folders if folder.is_relative_to(root)]
        yield self.config.option.capture == "no"

    def _order(self) -> JobOrder:
        target = self.promotion.target_of(self)
        return self.promotion.order(self, self.config.stash[SESSION].slice_name, target)

    def _followed(self, launched: LaunchedJob) -> ShippedOutcome:
        """The outcome that the job left; the job is told of in the test's properties and sections."""
        from t5x_harness.promotion.shipped import ShippedOutcomeError
        from t5x_harness.promotion.shipping import read_outcome
        from t5x_harness.promotion.stages import ending
        from t5x_harness.system.diagnosis import read_tail
        from t5x_harness.vertex.storage import Folder, StorageError

        session, job = self.config.stash[SESSION], launched.submitted
        log = session.runs.folder / f"{job.id}.log"
        with session.working():
            ended = self.promotion.jobs.follow(launched, log, session.progress)
        pages = [("t5x.job_url", job.url)] if job.url else []
        self.user_properties += [("t5x.job", job.name), *pages, ("t5x.state", str(ended.outcome))]
        self._told = f"{job.display_name}: {ended.outcome or ended.problem}\n{job.page}"
        try:
            outcome = read_outcome(Folder(job.output, job.target.project))
        except (ShippedOutcomeError, StorageError) as error:
            raise ShipFailed(f"{self.name}: the outcome cannot be read: {error}") from None
        if not ended.succeeded:
            _, message, fix = ending(ended, job, shipped=True)
            tail = read_tail(log) if log.exists() else "; ".join(ended.notes)
            raise ShipFailed(f"{self.name}: {message}\n    fix: {fix}\nthe end of the job's log:\n{tail}")
        if outcome is None:
            raise ShipFailed(f"{self.name}: the job {job.display_name} ended well and left no outcome in {job.output}")
        if outcome.problem:
            raise ShipFailed(f"{self.name}: it did not run in the job {job.display_name}:\n{outcome.problem}")
        self._tell_devices(outcome)
        return outcome


def submit_early(session: pytest.Session) -> None:
    """Sends jobs of shipped tests that follow, as many as may be there at once, and of which is known where they go.

    Not in a process of pytest-xdist, in which other workers take a part of the tests.
    """
    promotion = session.config.stash[PROMOTION]
    if not promotion.active or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for item in session.items:
        if isinstance(item, ShippedItem) and item.waits and promotion.knows_target(item) and promotion.jobs.has_room:
            item.send()


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
