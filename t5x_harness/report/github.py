"""The report as GitHub's workflow commands: findings stand as annotations at their lines."""

from __future__ import annotations

from t5x_harness.report.places import Place, PlacedFinding, placed_findings, run_place, source_root
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import last_line, stage_failure
from t5x_harness.spec import Outcome, Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report) -> str:
    """One command a finding, and the last line of the text report for the reader of the log."""
    return "\n".join([*annotation_commands(report), last_line(report)]) + "\n"


def annotation_commands(report: Report) -> list[str]:
    """A command for each finding, and for each failed stage that no finding explains.

    Paths are relative to the root of the repository. What is in no file of it is shown at the line that leads there.
    """
    root = source_root(report)
    commands = [_of_finding(placed) for placed in placed_findings(report, root)]
    for row in report.rows:
        for stage in row.result.stages:
            if stage.outcome is Outcome.FAILED and not stage.errors:
                place = run_place(row.result.spec, root)
                commands.append(command("error", stage_failure(stage), place, title=f"{row.name}: {stage.stage}"))
    return commands


def command(name: str, message: str, place: Place | None, *, title: str) -> str:
    """One workflow command: ``::error file=a.gin,line=3,title=GIN01::message``.

    Args:
      name: ``error``, ``warning`` or ``notice``.
      message: one or more lines.
      place: the line to show it at; None for none.
      title: stands above the message.
    """
    at = {"file": place.file, "line": str(place.line)} if place is not None else {}
    properties = ",".join(f"{key}={_escape(value, ':,')}" for key, value in {**at, "title": title}.items())
    return f"::{name} {properties}::{_escape(message)}"


def _of_finding(placed: PlacedFinding) -> str:
    finding = placed.finding
    lines = [placed.text]
    if placed.chain:
        lines.append(f"included from {', from '.join(f'{at.file}:{at.line}' for at in placed.chain)}")
    if finding.fix:
        lines.append(f"fix: {finding.fix}")
    return command(_COMMANDS[finding.severity], "\n".join(lines), placed.place, title=finding.code)


def _escape(text: str, more: str = "") -> str:
    """Percent-encodes what would end the command, and the characters of ``more``, which would end a property."""
    for character in f"%\r\n{more}":  # the percent sign first: each of the others becomes one
        text = text.replace(character, f"%{ord(character):02X}")
    return text
