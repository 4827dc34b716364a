"""The report as JUnit's XML, which CI services show as tests: a test case for each stage of each run.

The properties are those that pytest's ``--junitxml`` holds of the same stages.
"""

from __future__ import annotations

import os
import re
from xml.etree.ElementTree import Element, SubElement, tostring

from t5x_harness.findings.printable import printable
from t5x_harness.report.properties import stage_properties, version_properties
from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.terminal import failure_in_a_line, stage_failure
from t5x_harness.runtime.choice import runtime_of
from t5x_harness.spec import Outcome, StageResult

_LINE_ENDS = re.compile(r"\s*\n\s*")


def render(report: Report) -> str:
    """Writes one test suite; what users' files bring into it is printable, and so is allowed in XML."""
    report = printable(report)
    stages = [stage for row in report.rows for stage in row.result.stages]
    numbers = {
        "tests": len(stages),
        "errors": 0,
        "failures": sum(stage.outcome is Outcome.FAILED for stage in stages),
        "skipped": sum(stage.outcome is Outcome.NOT_RUN for stage in stages),
    }
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", name="t5x-harness")
    for name, number in numbers.items():
        suite.set(name, str(number))
    suite.set("time", f"{report.waited:.3f}")
    if report.results:
        slices = (result.spec.slice for result in report.results)
        _add_properties(suite, [*version_properties(runtime_of(report.results[0].spec), slices)])
    for row in report.rows:
        for stage in row.result.stages:
            _add_case(suite, row, stage)
    return f"{tostring(suites, encoding='us-ascii', xml_declaration=True).decode('ascii')}\n"


def _add_case(suite: Element, row: RunRow, stage: StageResult) -> None:
    files = row.result.spec.gin_files
    name = os.fspath(files[-1]) if files and row.name == row.result.spec.name else row.name
    case = SubElement(suite, "testcase", classname=name, name=stage.stage.value, time=f"{stage.seconds:.3f}")
    _add_properties(
        case, [("t5x.stage", stage.stage.value), ("t5x.seconds", f"{stage.seconds:.3f}"), *stage_properties(stage)]
    )
    if stage.outcome is Outcome.FAILED:
        SubElement(case, "failure", message=failure_in_a_line(stage, None)).text = stage_failure(stage)
    elif stage.outcome is Outcome.NOT_RUN:
        SubElement(case, "skipped", message=_LINE_ENDS.sub(" ", "; ".join(stage.not_checked) or "not run"))


def _add_properties(parent: Element, pairs: list[tuple[str, str]]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in pairs:
        SubElement(properties, "property", name=name, value=value)
