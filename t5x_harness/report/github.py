"""The report for GitHub: findings as annotations at their lines, and Markdown for the summary page of a workflow."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from t5x_harness.findings.printable import printable
from t5x_harness.report.report import PlacedFinding, Report, RunRow, SourceLine, placed_findings, run_place, source_root
from t5x_harness.report.table import duration, stage_mark
from t5x_harness.report.terminal import achieved, last_line, stage_failure
from t5x_harness.spec import Finding, Outcome, Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report) -> str:
    """Returns one command per finding, and the last line of the text report for the reader of the log."""
    return "\n".join([*annotation_commands(report), last_line(report)]) + "\n"


def commands_where_wanted(report: Report, when: str, environment: Mapping[str, str]) -> list[str]:
    """Returns the commands if ``when`` is ``always``, or if it is ``auto`` and this is a workflow of GitHub."""
    wanted = when == "always" or (when == "auto" and environment.get("GITHUB_ACTIONS") == "true")
    return annotation_commands(report) if wanted else []


def annotation_commands(report: Report) -> list[str]:
    """Returns a command for each finding, and for each failed stage that no finding explains.

    Paths are relative to the root of the repository. A finding outside it is shown at the line that leads there.
    """
    root = source_root(report)
    commands = [_of_finding(placed) for placed in placed_findings(report, root)]
    for row in report.rows:
        for stage in row.result.stages:
            if stage.outcome is Outcome.FAILED and not stage.errors:
                place = run_place(row.result.spec, root)
                commands.append(command("error", stage_failure(stage), place, title=f"{row.name}: {stage.stage}"))
    return commands


def command(name: str, message: str, place: SourceLine | None, *, title: str) -> str:
    """Returns one workflow command: ``::error file=a.gin,line=3,title=GIN01::message``.

    Args:
      name: ``error``, ``warning`` or ``notice``.
      message: one or more lines.
      place: the line at which to show it; None for no line.
      title: the title above the message.
    """
    at = {"file": place.file, "line": str(place.line)} if place is not None else {}
    properties = ",".join(f"{key}={_encode(value, ':,')}" for key, value in {**at, "title": title}.items())
    return f"::{name} {properties}::{_encode(message)}"


def _of_finding(placed: PlacedFinding) -> str:
    finding = placed.finding
    lines = [placed.text]
    if placed.chain:
        lines.append(f"included from {', from '.join(f'{at.file}:{at.line}' for at in placed.chain)}")
    if finding.fix:
        lines.append(f"fix: {finding.fix}")
    return command(_COMMANDS[finding.severity], "\n".join(lines), placed.place, title=finding.code)


def _encode(text: str, more: str = "") -> str:
    """Percent-encodes characters that would end the command, and those in ``more``, which would end a property."""
    text = printable(text)
    for character in f"%\r\n{more}":  # the percent sign first, because the codes of the others contain it
        text = text.replace(character, f"%{ord(character):02X}")
    return text


VARIABLE = "GITHUB_STEP_SUMMARY"
"""The variable that names the file to which a workflow's step adds its summary."""

_MOST_FINDINGS = 200  # GitHub refuses a page of a MiB as a whole
_SIGNS = {Severity.ERROR: "❌ error", Severity.WARNING: "⚠️ warning", Severity.NOTE: "note"}


def append_step_summary(report: Report, environment: Mapping[str, str]) -> None:
    """Adds the report to the file that ``$GITHUB_STEP_SUMMARY`` names, if it is set and the report is not empty.

    A summary that cannot be written is reported on standard error and fails no run.
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
    """Returns the summary: a table of runs, with stages, losses and metrics, then findings and what was not checked."""
    report = printable(report)
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
    """Escapes text for Markdown, so that nothing in it acts as a cell, tag, link, emphasis or formula."""
    return re.sub(r"([\\`*_\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))
