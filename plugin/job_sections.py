"""What the report of a promoted test with T5X jobs says of them, and what of that JUnit and other reporters find."""

from __future__ import annotations

import pytest

from t5x_harness.spec import RunResult, StageResult

__all__ = ["JOB_SECTION", "add_job_sections", "record_jobs", "tell_job"]

JOB_SECTION = "Vertex AI job"
"""The title of the section."""

_RECORDED = ("job", "job_url", "state", "devices")
_TOLD = pytest.StashKey[list[str]]()


def record_jobs(item: pytest.Item, result: RunResult) -> None:
    """Puts a run's job into the test's properties and its section."""
    for stage in result.stages:
        item.user_properties += [(f"t5x.{name}", value) for name, value in stage.facts if name in _RECORDED]
        tell_job(item, stage)


def tell_job(item: pytest.Item, stage: StageResult) -> None:
    """Puts a stage's job, if it was one, into the test's section."""
    facts = dict(stage.facts)
    if "job" in facts:
        page = [facts["job_url"]] if "job_url" in facts else []  # the emulated Vertex AI has none
        lines = [f"{facts['job']}: {facts['state']}", *page, f"devices: {facts['devices']}"]
        item.stash.setdefault(_TOLD, []).append("\n".join(lines))


def add_job_sections(item: pytest.Item, report: pytest.TestReport) -> None:
    """Gives the report of a test's call what :func:`tell_job` noted."""
    if report.when == "call":
        report.sections += [(JOB_SECTION, text) for text in item.stash.get(_TOLD, [])]
