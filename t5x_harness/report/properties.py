"""What other reporters, such as JUnit's, get of a run: names without blanks, and values of one line."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator

from t5x_harness.findings.printable import printable
from t5x_harness.runtime.choice import Runtime
from t5x_harness.spec import Measure, StageResult
from t5x_harness.version import __version__

_LIBRARIES = ("jax", "flax", "seqio")


def version_properties(runtime: Runtime, slices: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the versions of a session's runs, and on which slices they ran."""
    yield "t5x.harness", __version__
    yield "t5x.runtime", f"{runtime.kind} T5X {runtime.version}"
    yield "t5x.slice", ", ".join(dict.fromkeys(slices))
    for library in _LIBRARIES:
        try:
            yield f"t5x.{library}", importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue


def stage_properties(result: StageResult) -> list[tuple[str, str]]:
    """Returns the numbers of a stage, ``t5x.loss.train.step_4``, its facts of one line, and its findings' places."""
    result = printable(result)
    found = {
        ".".join(["t5x", measure.name, *filter(None, [measure.of]), *_step(measure)]): f"{measure.value:.10g}"
        for measure in result.measures
    }
    facts = {f"t5x.{name}": value for name, value in result.facts if "\n" not in value}
    tables = {f"t5x.{table.name}" for table in result.tables}
    found = {name: value for name, value in facts.items() if name not in tables} | found
    findings = [("t5x.finding", f"{f.code} {f.location or f.binding or ''}".rstrip()) for f in result.findings]
    return [*(("_".join(name.split()), value) for name, value in found.items()), *findings]


def job_properties(result: StageResult) -> list[tuple[str, str]]:
    """Returns what there is to know of the job that a stage was, if it was one."""
    return [
        (f"t5x.{name}", value)
        for name, value in result.facts
        if name in ("job", "job_url", "memory", "state", "devices")
    ]


def job_lines(result: StageResult) -> list[str]:
    """Returns the same in lines for people."""
    facts = dict(result.facts)
    if "job" not in facts:
        return []
    page = [facts["job_url"]] if "job_url" in facts else []  # the emulated Vertex AI has none
    memory = [f"memory: {facts['memory']}"] if "memory" in facts else []  # of programs that were compiled before
    return [f"{facts['job']}: {facts['state']}", *page, *memory, f"devices: {facts['devices']}"]


def _step(measure: Measure) -> list[str]:
    return [] if measure.step is None else [f"step_{measure.step}"]
