"""The report as text for people: whole, quiet, or brief if a session has already shown its failures."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import Style, wrap, wrap_table
from t5x_harness.findings.work import proved_nothing
from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.table import compiled, counted, duration, names_by_text, table
from t5x_harness.report.timings import timing_lines
from t5x_harness.spec import Finding, Outcome, Reason, RunResult, Severity, Stage, StageResult

_TONES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_SHOWN = (Severity.ERROR, Severity.WARNING)
"""The severities that the report shows by default, so that a green run stays quiet."""
GIVEN = "given by the harness, as by the command line of a job"
COMPILED = "compiled at full size"
STANDINS = "stand-ins, for what cannot be reached here"
_LEAST_WIDTH = 40
_LEAST_MESSAGE = 18
"""The columns of a message in one line that take precedence over its place."""


def render(
    report: Report,
    *,
    width: int = 100,
    color: bool = False,
    facts: bool = False,
    notes: bool = False,
    shown_above: bool = False,
) -> str:
    """Renders the whole report: a table, the findings, facts and changes, what was not checked, and a last line.

    Args:
      report: the runs.
      width: the number of columns to fill.
      color: whether to use terminal colors.
      facts: whether to also print the facts that each stage established.
      notes: whether to print notes, and the tables of arrays among the facts, rather than only their number.
      shown_above: whether the reasons for failed stages are already shown above the report.
    """
    report, style, width = _shown(report), Style(color), max(width, _LEAST_WIDTH)
    lines = table(report, width=width, style=style, notes=notes)
    not_checked = names_by_text((row.name, row.not_checked) for row in report.rows)
    shared = {text: names for text, names in not_checked.items() if len(names) > 1}
    for row in report.rows:
        section = [*_details(row, shared, width=width, style=style, facts=facts, notes=notes, shown_above=shown_above)]
        if section:
            lines += ["", style.bold(row.name) if len(report.rows) > 1 else "", *section]
    lines += [""] if shared else []
    for text, names in shared.items():
        lines += wrap(f"not checked of {', '.join(names)}: {text}", width, "", "    ")
    lines = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join([*lines, "", *_end(report, width=width, style=style, notes=notes)]) + "\n"


def _shown(report: Report) -> Report:
    """Returns what may be printed of a report, without the bindings of its runs, of which no text shows any."""
    results = tuple(dataclasses.replace(result, bindings=()) for result in report.results)
    return printable(dataclasses.replace(report, results=results))


def render_quietly(report: Report, *, width: int = 100, color: bool = False, notes: bool = False) -> str:
    """Returns the findings and the last line, and nothing else; see :func:`render`."""
    report, style, width = _shown(report), Style(color), max(width, _LEAST_WIDTH)
    found = dict.fromkeys(f for row in report.rows for f in row.findings if notes or f.severity in _SHOWN)
    lines = [line for finding in found for line in finding_lines(finding, width=width, style=style)]
    for row in report.rows:
        lines += [line for stage in row.result.stages if stage.outcome is Outcome.FAILED for line in _log(stage, width)]
    return "\n".join([*lines, *_end(report, width=width, style=style, notes=notes)]) + "\n"


def _end(report: Report, *, width: int, style: Style, notes: bool) -> Iterator[str]:
    """Yields where the time went, or how much of it imports took, if it was much, and the last line."""
    yield from timing_lines(report, width)
    if imports := slow_imports(report):
        yield from wrap(imports, width, "", "    ")
    last = style.tone("green" if report.passed else "red", last_line(report))
    yield last if notes else f"{last}{hidden_notes(report, '; ')}"


def stage_failure(result: StageResult, *, width: int = 100, color: bool = False, notes: bool = False) -> str:
    """Returns why one stage did not pass: its findings, and the end of the log if it has one.

    Args:
      result: a stage that failed or was not run.
      width: the number of columns to fill.
      color: whether to use terminal colors.
      notes: whether to include notes.
    """
    result, style = printable(result), Style(color)
    shown = [f for f in result.findings if notes or f.severity is not Severity.NOTE]
    lines = [line for f in shown for line in finding_lines(f, width=width, style=style)]
    if result.outcome is Outcome.NOT_RUN or not lines:
        for text in result.not_checked or (f"{result.stage} {result.outcome}, and no finding says why",):
            lines += wrap(text, width, "", "    ")
    return "\n".join([*lines, *_log(result, width)])


def failure_in_a_line(result: StageResult, room: int | None) -> str:
    """Returns the first error in a line, such as ``SEQ15: lacks targets (run.gin:15)``.

    Args:
      result: the stage's result.
      room: the columns to which it is cut; None for all of it.
    """
    error = next(iter(printable(result).errors), None)
    if error is None:
        return f"{result.stage} failed, and no finding says why"
    text = f"{error.code}: {error.message.partition(chr(10))[0]}"
    at = error.location
    place = f" ({printable(Path(at.file).name)}:{at.line})" if at is not None else ""
    if room is None or len(text + place) <= room:
        return text + place
    if room < _LEAST_MESSAGE + len(place):
        return text  # pytest cuts it
    return f"{text[: room - len(place) - 3].rstrip()}...{place}"


def run_failure(result: RunResult, *, width: int = 100, color: bool = False) -> str:
    """Returns why a run did not pass: the first stage that failed, and its reasons.

    Args:
      result: a run in which a stage failed.
      width: the number of columns to fill.
      color: whether to use terminal colors.
    """
    result = printable(result)
    failed = next((s for s in result.stages if s.outcome is Outcome.FAILED), None)
    if failed is None:
        in_vain = proved_nothing(result.stages)
        return f"{printable(result.spec.name)}: {in_vain.not_checked[0] if in_vain is not None else 'no stage was run'}"
    code = next((f"{finding.code}: " for finding in failed.errors), "")  # also comes first in pytest's short summary
    lines = [f"{code}{failed.stage} of {result.spec.name} failed", stage_failure(failed, width=width, color=color)]
    left_out = [s.stage.value for s in result.stages if s.outcome is Outcome.NOT_RUN]
    if left_out:
        lines.append(f"not run after it: {', '.join(left_out)}")
    return "\n".join(lines)


def finding_lines(finding: Finding, *, width: int, style: Style) -> list[str]:
    """Returns one finding: place, code and message; the include chain; the fix."""
    finding = printable(finding)
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


def _details(
    row: RunRow, shared: Collection[str], *, width: int, style: Style, facts: bool, notes: bool, shown_above: bool
) -> Iterator[str]:
    stages = row.result.stages
    left = {f for stage in stages if stage.outcome is Outcome.FAILED for f in stage.findings} if shown_above else set()
    for finding in row.findings:
        if finding not in left and (notes or finding.severity is not Severity.NOTE):
            yield from finding_lines(finding, width=width, style=style)
    for stage in stages:
        if stage.outcome is Outcome.FAILED and not shown_above:
            yield from _log(stage, width)
    yield from _listed("losses and metrics", achieved(row.result), width)
    yield from _listed(COMPILED, compiled(row.result), width)
    yield from _listed("restarted after", faults_of(row.result), width)
    if facts:
        yield from _facts(row.result, width, notes)
    # Stand-ins and given values have their own lists.
    changes = [c for c in row.result.changes if c.why not in (Reason.STANDIN, Reason.GIVEN)]
    texts = [f"{c.binding} = {c.after} (was {c.before}; {c.why})" for c in changes]
    yield from _listed("changed for this run", texts, width)
    yield from _listed(GIVEN, given_values(row.result, values=notes), width)
    yield from _listed(STANDINS, row.result.standins, width)
    yield from _listed("not checked", [text for text in row.not_checked if text not in shared], width)
    if not row.result.passed and row.result.log:
        yield f"log: {row.result.log}"


def achieved(result: RunResult) -> list[str]:
    """Returns the losses and metrics of a run in brief, each by its tag in TensorBoard or by its task."""
    losses: dict[str, list[str]] = {}
    metrics: dict[str, list[str]] = {}
    for stage in result.stages:
        for measure in stage.measures:
            if measure.name == "loss" and measure.step is not None:
                tag = f"{measure.of}/loss" if stage.stage is Stage.TRAIN else f"{stage.stage}: {measure.of}/loss"
                losses.setdefault(tag, []).append(f"{measure.value:.4g} at step {measure.step}")
            elif stage.stage is Stage.EVAL:
                metrics.setdefault(measure.of, []).append(f"{measure.name} {measure.value:.4g}")
    return [
        *(f"{tag} {', '.join(values)}" for tag, values in losses.items()),
        *(f"{task}: {', '.join(values)}" for task, values in metrics.items()),
    ]


def faults_of(result: RunResult) -> list[str]:
    """Returns the result of each fault of a campaign, and of all of them."""
    facts = (fact for stage in result.stages if stage.stage is Stage.RESUME for fact in stage.facts)
    return [text for name, text in facts if name.startswith("fault ") or name == "campaign"]


def given_values(result: RunResult, *, values: bool) -> list[str]:
    """Returns what the harness sets because the config leaves it to its job's command line, with values if wanted."""
    given = [change for change in result.changes if change.why is Reason.GIVEN]
    return [f"{change.binding} = {change.after}" if values else change.binding for change in given]


def _facts(result: RunResult, width: int, details: bool) -> Iterator[str]:
    """Yields the facts of the stages, last stage first, as it says most; tables of arrays only on request."""
    for stage in reversed(result.stages):
        hidden = 0
        for name, value in stage.facts:
            if name.startswith("arrays") and not details:
                hidden += 1
            elif "\n" in value:  # a table
                yield f"  {stage.stage}: {name}:"
                yield from wrap_table(value, width, "      ")
            else:
                yield from wrap(f"{stage.stage}: {name}: {value}", width, "  ", "      ")
        if hidden:
            yield f"  {counted(hidden, 'table')} of arrays, -v shows {'it' if hidden == 1 else 'them'}"


def _log(stage: StageResult, width: int) -> Iterator[str]:
    """Yields the end of the log, unless the findings explain the failure: then it only has messages of libraries."""
    if stage.errors and not any(f.code.startswith("RUN") for f in stage.errors):
        return
    tail = stage.log_tail.rstrip().splitlines()[-20:]
    if tail:
        yield f"the last {len(tail)} lines of the log of {stage.stage}:" if len(tail) > 1 else "the log's last line:"
        yield from (part for line in tail for part in wrap(line, width, "  | ", "  |   "))


def _listed(title: str, items: Sequence[str], width: int) -> Iterator[str]:
    """Yields a titled list that stays short: one item in the title's line, more below it, and nothing for none."""
    if len(items) == 1:
        yield from wrap(f"{title}: {items[0]}", width, "", "    ")
        return
    if items:
        yield f"{title}:"
    for item in items:
        yield from wrap(item, width, "  ", "    ")


def last_line(report: Report) -> str:
    """Returns ``1 failed, 2 passed, 1 error, 3 warnings in 41 s``.

    Interrupted runs are not finished. A run proved nothing if it ended without anything to judge.
    """
    passed, failed = report.count_runs(Outcome.PASSED), report.count_runs(Outcome.FAILED)
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{passed} passed"] if passed else []
    in_vain = sum(proved_nothing(result.stages) is not None for result in report.results)
    parts += [f"{in_vain} proved nothing"] if in_vain else []
    parts += [f"{unfinished} not finished"] if (unfinished := report.count_runs(Outcome.NOT_RUN) - in_vain) else []
    parts += [counted(n, severity) for severity in _SHOWN if (n := report.count(severity))]
    if not report.results:
        parts = ["nothing was run"]
    if failed and any(result.spec.settings.strict for result in report.results):
        parts[-1] += " (strictly: warnings are errors)"
    return f"{', '.join(parts)} in {duration(report.waited)}"


def slow_imports(report: Report) -> str:
    """Returns how much of the time imports took, and what further runs save of it; an empty text if it was little."""
    took = f"importing T5X took {duration(report.imports.seconds)}"
    if report.imports.stay:
        return f"{took}; kept for 15 min (t5x-harness warm --stop ends it)"
    return f"{took} of it; t5x-harness warm saves that for further runs" if report.imports.seconds >= 5.0 else ""


def hidden_notes(report: Report, before: str = "") -> str:
    """Returns ``2 notes, -v shows them`` preceded by ``before``; empty if there are no notes."""
    number = report.count(Severity.NOTE)
    return f"{before}{counted(number, 'note')}, -v shows {'it' if number == 1 else 'them'}" if number else ""


_CHANGES = {
    Reason.SHRINK: "shrunk to run here",
    Reason.STEPS: "steps that the test asks for",
    Reason.REPEATABLE: "seeded, where T5X would take the clock",
}
"""The titles of changes by their reasons; stand-ins and folders have their own sections."""


def render_brief(report: Report, *, width: int, color: bool = False) -> str:
    """Renders the table, and each finding, change and unchecked item of passed stages, once for all runs.

    Args:
      report: the runs.
      width: the number of columns to fill.
      color: whether to use terminal colors.
    """
    report, style = _shown(report), Style(color)
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

    def listed(title: str, texts_of: Callable[[RunResult], Sequence[str]]) -> Iterator[str]:
        texts = names_by_text((row.name, texts_of(row.result)) for row in report.rows)
        return _listed_with_runs(title, texts, len(report.rows), width)

    def not_checked(result: RunResult) -> list[str]:
        """Returns what was not checked, without the stages that were not run, which the table shows."""
        run = (stage for stage in result.stages if stage.outcome is not Outcome.NOT_RUN)
        return [text for stage in run for text in stage.not_checked]

    sections = [
        *listed("losses and metrics", achieved),
        *listed(COMPILED, compiled),
        *_changes(report, width),
        *listed(GIVEN, lambda result: given_values(result, values=False)),
        *listed(STANDINS, lambda result: result.standins),
        *listed("not checked", not_checked),
        *timing_lines(report, width),
        *(wrap(imports, width, "", "    ") if (imports := slow_imports(report)) else ()),
        *filter(None, [hidden_notes(report)]),
    ]
    return "\n".join([*lines, *([""] if sections else []), *sections]) + "\n"


def _changes(report: Report, width: int) -> Iterator[str]:
    """Yields the number of changed values; for a single run, the list of them."""
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


def _listed_with_runs(title: str, texts: Mapping[str, Sequence[str]], runs: int, width: int) -> Iterator[str]:
    """Yields a titled list of texts, each with the runs to which it applies, or the first two of many."""
    if texts:
        yield f"{title}:"
    for text, names in texts.items():
        some = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        where = "" if runs == 1 else " (every run)" if len(names) == runs else f" ({some})"
        yield from wrap(f"{text}{where}", width, "  ", "    ")
