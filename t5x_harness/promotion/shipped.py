"""The outcome of a shipped test, as pytest wrote it in the job, and its reports and warnings repeated here.

Pytest can serialize its reports, but not the warnings of a test.
"""

import builtins
import dataclasses
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from t5x_harness.vertex.logs import RanOn

_VERSION = 2


class ShippedOutcomeError(ValueError):
    """A job's output is not the outcome of a test; the message says why."""


class ShipFailed(Exception):
    """A job has no outcome of its test, or an outcome that does not count; the message says why."""


@dataclasses.dataclass(frozen=True)
class ShippedOutcome:
    """The outcome of one test in a job.

    Attributes:
      nodeid: the node id of the test.
      status: pytest's exit status.
      reports: the reports of setup, call and teardown, as pytest serializes them.
      problem: why there are no reports, such as an import error; empty if reports exist.
      devices: JAX's devices, such as ``8 x TPU v3``, or why it had none; empty if the test did not import JAX.
      platform: the platform of these devices: ``tpu``, ``cpu``, …; empty if there are none.
      platform_set: whether JAX's platform was set, as by JAX_PLATFORMS; otherwise JAX chooses the best one it finds.
      versions: the versions of Python, pytest, the harness and JAX.
      warnings: the warnings of the test, as :mod:`t5x_harness.promotion.shipped` serializes them.
    """

    nodeid: str
    status: int
    reports: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    devices: str = ""
    platform: str = ""
    platform_set: bool = False
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[Mapping[str, Any], ...] = ()

    @property
    def ran_on(self) -> RanOn:
        """The devices that the test's JAX ran on."""
        return RanOn(self.devices, self.platform, self.platform_set, unknown="not looked at: the test imported no JAX")

    @property
    def failed(self) -> bool:
        """Whether one of the test's phases or subtests failed."""
        return any(report["outcome"] == "failed" for report in self.reports)

    def about_versions(self) -> str:
        """Lists the versions in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def to_text(self) -> str:
        """Serializes the outcome as JSON; values that JSON cannot represent become text."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses the text of :meth:`to_text`.

        Raises:
          ShippedOutcomeError: the text is not an outcome.
        """
        try:
            value = json.loads(text)
            version = value.pop("version")
            if version != _VERSION:
                raise ShippedOutcomeError(
                    f"the report of the job has version {version}, and this t5x-harness reads version {_VERSION}: "
                    "it differs from the image's"
                )
            return cls(**{**value, **{name: tuple(value[name]) for name in ("reports", "warnings")}})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ShippedOutcomeError(f"the report of the job cannot be read: {error}") from None


class RepeatedReports:
    """The reports and warnings of an outcome, for the local item of its test.

    Args:
      outcome: the outcome from the job.
      item: the local item.
    """

    def __init__(self, outcome: ShippedOutcome, item: pytest.Item) -> None:
        self._outcome = outcome
        self._item = item

    def phase(self, when: str) -> pytest.TestReport | None:
        """Returns the report of a phase; None if there is none."""
        # The last one, because the reports of subtests and of a plugin's reruns come before the test's own.
        found = next((report for report in reversed(self._outcome.reports) if report["when"] == when), None)
        return self._here(found) if found is not None else None

    def repeat_subtests(self) -> ShipFailed | None:
        """Reports each subtest as pytest does; returns a failure if one failed that pytest here does not support."""
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
        """Adds the test's warnings to this session's warnings."""
        for value in self._outcome.warnings:
            warning = warning_from_json(value, self._item.config.rootpath)
            recorded = {"warning_message": warning, "when": "runtest", "nodeid": self._item.nodeid, "location": None}
            self._item.ihook.pytest_warning_recorded.call_historic(kwargs=recorded)

    def _here(self, report: Mapping[str, Any]) -> pytest.TestReport | None:
        """Makes a report for the local item; None if the local pytest does not support its kind."""
        item, longrepr = self._item, report["longrepr"]
        if isinstance(longrepr, list):  # the reason for skipping, because JSON has no tuples; the file is the local one
            file, line, reason = longrepr
            longrepr = (str(item.path) if Path(file).name == item.path.name else file, line, reason)
        pairs = {name: [*map(tuple, report[name])] for name in ("user_properties", "sections")}
        data = {**report, **pairs, "nodeid": item.nodeid, "location": item.location, "longrepr": longrepr}
        here: pytest.TestReport | None = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        return here


def warning_to_json(warning: warnings.WarningMessage, folder: Path) -> dict[str, Any]:
    """Serializes a warning for JSON.

    Args:
      warning: the recorded warning.
      folder: the folder with the unpacked test; files in it are named relative to it.
    """
    file = Path(os.path.abspath(warning.filename))
    return {
        "category": warning.category.__name__,
        "text": str(warning.message),
        "file": str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file),
        "line": warning.lineno,
    }


def warning_from_json(value: Mapping[str, Any], folder: Path) -> warnings.WarningMessage:
    """Makes a warning from the result of :func:`warning_to_json`.

    Warning classes of other libraries are not imported; their names become prefixes of the texts.

    Args:
      value: the serialized warning.
      folder: the folder that the test was packed from.
    """
    name, text = value["category"], value["text"]
    category = getattr(builtins, name, None) or getattr(pytest, name, None)
    if not isinstance(category, type) or not issubclass(category, Warning):
        category, text = UserWarning, f"{name}: {text}"
    return warnings.WarningMessage(text, category, str(folder / value["file"]), int(value["line"]))
