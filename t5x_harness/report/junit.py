"""The report as JUnit's XML, which CI services show as tests: a test case for each stage of each run.

The properties are those that pytest's ``--junitxml`` has for the same stages: names without blanks, and values on one
line.
"""

import os
import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, SubElement, tostring

from t5x_harness.findings.printable import printable
from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.terminal import failure_in_a_line, stage_failure
from t5x_harness.runtime.choice import Runtime, runtime_of
from t5x_harness.spec import Outcome, StageResult
from t5x_harness.version import __version__, version_of

_LIBRARIES = ("jax", "flax", "seqio")


def version_properties(runtime: Runtime, slices: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the versions of a session's runs, and the slices on which they ran."""
    yield "t5x.harness", __version__
    yield "t5x.runtime", f"{runtime.kind} T5X {runtime.version}"
    yield "t5x.slice", ", ".join(dict.fromkeys(slices))
    for library in _LIBRARIES:
        if version := version_of(library):
            yield f"t5x.{library}", version


def stage_properties(result: StageResult) -> list[tuple[str, str]]:
    """Returns a stage's numbers, such as ``t5x.loss.train.step_4``, its facts of one line, and its findings' places."""
    result = printable(result)
    found = {}
    for measure in result.measures:
        step = f"step_{measure.step}" if measure.step is not None else ""
        found[".".join(filter(None, ["t5x", measure.name, measure.of, step]))] = f"{measure.value:.10g}"
    facts = {f"t5x.{name}": value for name, value in result.facts if "\n" not in value}
    tables = {f"t5x.{table.name}" for table in result.tables}
    found = {name: value for name, value in facts.items() if name not in tables} | found
    findings = [("t5x.finding", f"{f.code} {f.location or f.binding or ''}".rstrip()) for f in result.findings]
    return [*(("_".join(name.split()), value) for name, value in found.items()), *findings]


def job_properties(result: StageResult) -> list[tuple[str, str]]:
    """Returns the facts about the job that a stage was, if it was one."""
    return [
        (f"t5x.{name}", value)
        for name, value in result.facts
        if name in ("job", "job_url", "memory", "state", "devices")
    ]


def job_lines(result: StageResult) -> list[str]:
    """Returns the same facts as lines for people."""
    facts = dict(result.facts)
    if "job" not in facts:
        return []
    page = [facts["job_url"]] if "job_url" in facts else []  # the emulated Vertex AI has none
    memory = [f"memory: {facts['memory']}"] if "memory" in facts else []  # for programs that were compiled earlier
    return [f"{facts['job']}: {facts['state']}", *page, *memory, f"devices: {facts['devices']}"]


def render(report: Report) -> str:
    """Writes one test suite; text from users' files is made printable, so it is allowed in XML."""
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
        SubElement(case, "skipped", message=re.sub(r"\s*\n\s*", " ", "; ".join(stage.not_checked) or "not run"))


def _add_properties(parent: Element, pairs: list[tuple[str, str]]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in pairs:
        SubElement(properties, "property", name=name, value=value)
