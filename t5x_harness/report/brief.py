"""The end of a session that has already shown its failures one by one, as pytest does: the table, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import Style, wrap
from t5x_harness.report.programs import compiled
from t5x_harness.report.report import Report
from t5x_harness.report.table import table
from t5x_harness.report.terminal import (
    COMPILED,
    GIVEN,
    STANDINS,
    achieved,
    finding_lines,
    given_values,
    hidden_notes,
    render,
    slow_imports,
)
from t5x_harness.spec import Outcome, Reason, Severity

_CHANGES = {
    Reason.SHRINK: "shrunk to run here",
    Reason.STEPS: "steps that the test asks for",
    Reason.REPEATABLE: "seeded, where T5X would take the clock",
}
"""What to call a change by what it is for; stand-ins and folders have sections of their own."""

_NAMES = 2


def render_end(report: Report, *, width: int, color: bool, notes: bool, shown_above: bool) -> str:
    """Returns the report in brief; the whole of it where notes are wanted. ``shown_above`` as for the whole."""
    if notes:
        return render(report, width=width, color=color, notes=True, shown_above=shown_above)
    return render_brief(report, width=width, color=color)


def render_brief(report: Report, *, width: int, color: bool = False) -> str:
    """Renders the table, and each finding, change and unchecked item of stages that passed once for all runs.

    Args:
      report: the runs.
      width: columns to fill.
      color: whether to use terminal colours.
    """
    report, style = printable(report), Style(color)
    lines = table(report, width=width, style=style)
    for finding in dict.fromkeys(
        finding
        for result in report.results
        for stage in result.stages
        if stage.outcome is Outcome.PASSED
        for finding in stage.findings
        if finding.severity is not Severity.NOTE
    ):
        lines += finding_lines(finding, width=width, style=style)
    reached = _by_text((row.name, achieved(row.result)) for row in report.rows)
    programs = _by_text((row.name, compiled(row.result)) for row in report.rows)
    given = _by_text((row.name, given_values(row.result, values=False)) for row in report.rows)
    standins = _by_text((row.name, row.result.standins) for row in report.rows)
    # The table shows which stages were not run.
    run = [
        (row.name, stage) for row in report.rows for stage in row.result.stages if stage.outcome is not Outcome.NOT_RUN
    ]
    not_checked = _by_text((name, stage.not_checked) for name, stage in run)
    sections = [
        *_listed("losses and metrics", reached, len(report.rows), width),
        *_listed(COMPILED, programs, len(report.rows), width),
        *_changes(report, width),
        *_listed(GIVEN, given, len(report.rows), width),
        *_listed(STANDINS, standins, len(report.rows), width),
        *_listed("not checked", not_checked, len(report.rows), width),
        *(wrap(imports, width, "", "    ") if (imports := slow_imports(report)) else ()),
        *filter(None, [hidden_notes(report)]),
    ]
    return "\n".join([*lines, *([""] if sections else []), *sections]) + "\n"


def _changes(report: Report, width: int) -> Iterator[str]:
    """Yields how many values were changed; a single run's own list."""
    for why, title in _CHANGES.items():
        changed = [[c for c in result.changes if c.why == why] for result in report.results]
        if len(changed) == 1 and changed[0]:
            values = ", ".join(f"{c.binding} = {c.after} (was {c.before})" for c in changed[0])
        elif any(changed):
            runs = sum(map(bool, changed))
            values = f"{sum(map(len, changed))} values in {runs} run{'s' * (runs > 1)} (-v lists them)"
        else:
            continue
        yield from wrap(f"{title}: {values}", width, "", "    ")


def _by_text(rows: Iterable[tuple[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Returns the texts of all runs, each with the names of the runs it is true of."""
    found: dict[str, list[str]] = {}
    for name, texts in rows:
        for text in texts:
            found.setdefault(text, []).append(name)
    return found


def _listed(title: str, texts: Mapping[str, Sequence[str]], runs: int, width: int) -> Iterator[str]:
    if texts:
        yield f"{title}:"
    for text, names in texts.items():
        where = "" if runs == 1 else " (every run)" if len(names) == runs else f" ({_some(names)})"
        yield from wrap(f"{text}{where}", width, "  ", "    ")


def _some(names: Sequence[str]) -> str:
    left = len(names) - _NAMES
    return ", ".join(names) if left <= 1 else f"{', '.join(names[:_NAMES])} and {left} more"
