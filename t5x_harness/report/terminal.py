"""The report as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.style import Style
from t5x_harness.report.table import counted, duration, table
from t5x_harness.report.wrapping import wrap, wrap_table
from t5x_harness.spec import Change, Finding, Outcome, RunResult, Severity, StageResult

__all__ = ["finding_lines", "hidden_notes", "last_line", "render", "run_failure", "stage_failure"]

_TONES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_TOLD = (Severity.ERROR, Severity.WARNING)
"""What stands in the report unasked: a green run stays quiet."""
_LOG_LINES = 20
_LEAST_WIDTH = 60


def render(report: Report, *, width: int = 100, color: bool = False, facts: bool = False, notes: bool = False) -> str:
    """The whole report: a table, the findings, what was changed and made up, what was not checked, and a last line.

    Args:
      report: the runs.
      width: columns to fill.
      color: whether to use terminal colours.
      facts: whether to print what each stage established, too.
      notes: whether to print notes, and not only their number in the last line.
    """
    style, width = Style(color), max(width, _LEAST_WIDTH)
    lines = table(report, width=width, style=style, notes=notes)
    for row in report.rows:
        section = list(_details(row, width=width, style=style, facts=facts, notes=notes))
        if section:
            lines += ["", style.bold(row.name) if len(report.rows) > 1 else "", *section]
    lines = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    last = style.tone("green" if report.passed else "red", last_line(report))
    return "\n".join([*lines, "", last if notes else f"{last}{hidden_notes(report, '; ')}"]) + "\n"


def stage_failure(result: StageResult, *, width: int = 100, color: bool = False, notes: bool = False) -> str:
    """Why one stage did not pass: its findings, and the end of the log if there is one.

    Args:
      result: a stage that failed or was not run.
      width: columns to fill.
      color: whether to use terminal colours.
      notes: whether notes are among the findings to show.
    """
    style = Style(color)
    shown = [f for f in result.findings if notes or f.severity is not Severity.NOTE]
    lines = [line for f in shown for line in finding_lines(f, width=width, style=style)]
    if result.outcome is Outcome.NOT_RUN or not lines:
        lines += result.not_checked or (f"{result.stage} {result.outcome}, and no finding says why",)
    return "\n".join([*lines, *_log(result)])


def run_failure(result: RunResult, *, width: int = 100, color: bool = False) -> str:
    """Why a run did not pass: the first stage that failed, and what it says.

    Args:
      result: a run of which a stage failed.
      width: columns to fill.
      color: whether to use terminal colours.
    """
    failed = next((s for s in result.stages if s.outcome is Outcome.FAILED), None)
    if failed is None:
        return f"{result.spec.name}: no stage was run"
    lines = [f"{result.spec.name}: {failed.stage} failed", stage_failure(failed, width=width, color=color)]
    left_out = [s.stage.value for s in result.stages if s.outcome is Outcome.NOT_RUN]
    if left_out:
        lines.append(f"not run after it: {', '.join(left_out)}")
    return "\n".join(lines)


def finding_lines(finding: Finding, *, width: int, style: Style) -> list[str]:
    """One finding: place, code and message; the include chain; the mend."""
    place = f"{finding.location or finding.binding}: " if finding.location or finding.binding else ""
    severity = style.tone(_TONES[finding.severity], finding.severity.value)
    head = wrap(f"{place}{finding.severity} {finding.code}: {finding.message}", width, "", "    ")
    head[0] = head[0].replace(f"{finding.severity} {finding.code}", f"{severity} {style.bold(finding.code)}", 1)
    lines = head
    if finding.location and finding.location.included_from:
        # Innermost first, as the chain is followed back to the file that the user named.
        chain = ", from ".join(str(at) for at in reversed(finding.location.included_from))
        lines += wrap(f"included from {chain}", width, "    ", "      ")
    if finding.fix:
        lines += wrap(f"fix: {finding.fix}", width, "    ", "      ")
    return lines


def _details(row: RunRow, *, width: int, style: Style, facts: bool, notes: bool) -> Iterator[str]:
    if facts:
        for stage in row.result.stages:
            for name, value in stage.facts:
                yield from _fact(f"{stage.stage}: {name}:", value, width)
    for finding in row.findings:
        if notes or finding.severity is not Severity.NOTE:
            yield from finding_lines(finding, width=width, style=style)
    for stage in row.result.stages:
        if stage.outcome is Outcome.FAILED:
            yield from _log(stage)
    # Stand-ins have a list of their own; an output folder that the config leaves open is no value that was changed.
    changes = [c for c in row.result.changes if c.why != "standin" and c.before != "%gin.REQUIRED"]
    if changes:
        yield from _listed("changed for this run", [_change(c) for c in changes], width)
    if row.result.standins:
        yield from _listed("made up, as it cannot be reached here", row.result.standins, width)
    if row.not_checked:
        yield from _listed("not checked", row.not_checked, width)
    if not row.result.passed and row.result.log:
        yield f"log: {row.result.log}"


def _fact(title: str, value: str, width: int) -> Iterator[str]:
    """What was established: in the title's line, or below it if it is a table."""
    if "\n" in value:
        yield f"  {title}"
        yield from wrap_table(value, width, "      ")
    else:
        yield from wrap(f"{title} {value}", width, "  ", "      ")


def _change(change: Change) -> str:
    return f"{change.binding} = {change.after} (was {change.before}; {change.why})"


def _log(stage: StageResult) -> Iterator[str]:
    """The end of the log, unless the findings explain the failure: then it only holds the talk of libraries."""
    if stage.errors and not any(f.code.startswith("RUN") for f in stage.errors):
        return
    tail = stage.log_tail.rstrip().splitlines()[-_LOG_LINES:]
    if tail:
        yield f"the last {len(tail)} lines of the log of {stage.stage}:" if len(tail) > 1 else "the log's last line:"
        yield from (f"  | {line}" for line in tail)


def _listed(title: str, items: Sequence[str], width: int) -> Iterator[str]:
    """A titled list that stays short: one item in the title's line, more below it."""
    if len(items) == 1:
        yield from wrap(f"{title}: {items[0]}", width, "", "    ")
        return
    yield f"{title}:"
    for item in items:
        yield from wrap(item, width, "  ", "    ")


def last_line(report: Report) -> str:
    """``1 failed, 2 passed, 1 error, 3 warnings in 41 s``."""
    passed, failed = report.count_runs(Outcome.PASSED), report.count_runs(Outcome.FAILED)
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{passed} passed"] if passed else []
    parts += [counted(n, severity) for severity in _TOLD if (n := report.count(severity))]
    if not report.results:
        parts = ["nothing was run"]
    return f"{', '.join(parts)} in {duration(sum(row.seconds for row in report.rows))}"


def hidden_notes(report: Report, before: str = "") -> str:
    """``2 notes, -v shows them`` with ``before`` in front of it; nothing if there is none."""
    number = report.count(Severity.NOTE)
    return f"{before}{counted(number, 'note')}, -v shows {'it' if number == 1 else 'them'}" if number else ""
