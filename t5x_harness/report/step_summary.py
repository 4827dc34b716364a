"""The report as Markdown, for the summary page of a GitHub workflow."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.table import duration, stage_mark
from t5x_harness.report.terminal import achieved, last_line
from t5x_harness.spec import Finding, Severity

VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that a workflow's step adds its summary to."""

_MOST_FINDINGS = 200  # a page of a MiB is refused as a whole
_SIGNS = {Severity.ERROR: "❌ error", Severity.WARNING: "⚠️ warning", Severity.NOTE: "note"}


def append_step_summary(report: Report, environment: Mapping[str, str]) -> None:
    """Adds the report to the file that ``$GITHUB_STEP_SUMMARY`` names, if it is set and there is something to tell.

    A summary that cannot be written is told on standard error: it fails no run.
    """
    file = environment.get(VARIABLE)
    if not file or not report.results:
        return
    try:
        with open(file, "a", encoding="utf-8") as summary:
            summary.write(markdown(report))
    except OSError as error:
        print(f"t5x-harness: ${VARIABLE} cannot be written: {error.strerror}: {file}", file=sys.stderr)


def markdown(report: Report) -> str:
    """A table of the runs and their stages, their losses and metrics, their findings, and what was not checked."""
    parts = (_runs(report), _numbers(report), _findings(report), _not_checked(report))
    return "\n".join(["### t5x-harness", "", last_line(report), "", *(line for part in parts for line in part)]) + "\n"


def _runs(report: Report) -> Iterator[str]:
    stages = report.stages
    yield from _table_head("run", "mode", "slice", *(stage.value for stage in stages), "time")
    for row in report.rows:
        spec = row.result.spec
        slice_and_mesh = f"{spec.slice} {row.mesh}".rstrip()
        marks = (stage_mark(row, stage) for stage in stages)
        yield _table_row(row.name, spec.mode.value if spec.mode else "?", slice_and_mesh, *marks, duration(row.seconds))
    yield ""


def _numbers(report: Report) -> Iterator[str]:
    lines = [f"- {_escape(f'{row.name}: {text}')}" for row in report.rows for text in achieved(row.result)]
    if lines:
        yield from ("losses and metrics:", "", *lines, "")


def _findings(report: Report) -> Iterator[str]:
    found: dict[Finding, list[RunRow]] = {}
    for row in report.rows:
        for finding in row.findings:
            found.setdefault(finding, []).append(row)
    if not found:
        return
    yield from _table_head("severity", "code", "where", "what", "fix", "run")
    for finding, rows in list(found.items())[:_MOST_FINDINGS]:
        where = str(finding.location or finding.binding or "")
        names = ", ".join(row.name for row in rows)
        yield _table_row(_SIGNS[finding.severity], finding.code, where, finding.message, finding.fix or "", names)
    yield ""
    if len(found) > _MOST_FINDINGS:
        yield from (f"and {len(found) - _MOST_FINDINGS} more findings", "")


def _not_checked(report: Report) -> Iterator[str]:
    texts = list(dict.fromkeys(text for row in report.rows for text in row.not_checked))
    if texts:
        yield from (f"<details><summary>not checked: {len(texts)}</summary>", "")
        yield from (f"- {_escape(text)}" for text in texts)
        yield from ("", "</details>", "")


def _table_head(*heads: str) -> Sequence[str]:
    return f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    """Text that shows as it is, though it stands in Markdown: no cell, tag, link, emphasis or formula comes of it."""
    return re.sub(r"([\\`*_\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))
