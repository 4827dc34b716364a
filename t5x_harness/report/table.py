"""The table of runs: one row each, as wide as the terminal allows."""

from __future__ import annotations

from collections.abc import Sequence

from t5x_harness.report.report import Report, RunRow
from t5x_harness.report.style import Style
from t5x_harness.spec import Outcome, Severity, Stage

__all__ = ["duration", "table"]

_MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_RUN: "-"}
_TONES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.NOT_RUN: "dim"}
_GAP = "  "
_LEAST_NAME = 12


def table(report: Report, *, width: int, style: Style) -> list[str]:
    """The table's lines.

    Args:
      report: the runs.
      width: columns of the terminal; the mesh is left out and names are cut before a row gets wider.
      style: colours, if any.
    """
    stages = report.stages
    head = ["run", "mode", "slice", *(stage.value for stage in stages), "time", "findings"]
    for with_mesh in (True, False):
        rows = [_cells(row, stages, with_mesh=with_mesh) for row in report.rows]
        widths = [max(len(cells[i]) for cells in (head, *rows)) for i in range(len(head))]
        excess = sum(widths) + len(_GAP) * (len(head) - 1) - width
        if excess <= 0:
            break
    widths[0] = max(min(widths[0], _LEAST_NAME), widths[0] - max(0, excess))
    lines = [style.bold(_line(head, widths))]
    for row, cells in zip(report.rows, rows, strict=True):
        cells[0] = _cut(cells[0], widths[0])
        padded = [cell.ljust(size) for cell, size in zip(cells, widths, strict=True)]
        for index, stage in enumerate(stages, start=3):
            outcome = next((s.outcome for s in row.result.stages if s.stage is stage), None)
            if outcome is not None:
                padded[index] = style.tone(_TONES[outcome], padded[index])
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _cells(row: RunRow, stages: Sequence[Stage], *, with_mesh: bool) -> list[str]:
    spec = row.result.spec
    outcomes = {stage.stage: stage.outcome for stage in row.result.stages}
    place = f"{spec.slice} {row.mesh}" if with_mesh and row.mesh else spec.slice
    return [
        row.name,
        spec.mode.value if spec.mode else "?",
        place,
        *(_MARKS[outcomes[stage]] if stage in outcomes else "" for stage in stages),
        duration(row.seconds),
        _counts(row),
    ]


def _counts(row: RunRow) -> str:
    """``2 errors, 1 warning``; a dash for none."""
    parts = []
    for severity in Severity:
        number = sum(f.severity is severity for f in row.findings)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 else ''}")
    return ", ".join(parts) or "-"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)).rstrip()


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def duration(seconds: float) -> str:
    """A time as people say it: ``0.2 s``, ``41 s``, ``3 min 05 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
