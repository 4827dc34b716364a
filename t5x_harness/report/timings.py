"""Where the time of each run went, as lines of the report."""

from collections.abc import Iterator

from t5x_harness.findings.text import wrap
from t5x_harness.report.report import Report
from t5x_harness.report.table import duration
from t5x_harness.spec import StageResult

_SHOWN = 0.02
"""The share of a stage, or of the imports, below which a part is not shown by itself."""


def timing_lines(report: Report, width: int) -> Iterator[str]:
    """Yields the seconds of each run and of its stages, with their parts; nothing if they were not measured.

    The lines of a run add up to the time that was waited for it, those of the only run of a call to the time of the
    call: what nothing accounts for has a line, too.

    Args:
      report: the runs.
      width: the columns of the terminal.
    """
    if not any(stage.parts for row in report.rows for stage in row.result.stages):
        return
    yield "where the time went:"
    is_alone = len(report.rows) == 1
    for row in report.rows:
        stages = [(stage.stage.value, stage.seconds, _parts(stage)) for stage in row.result.stages if stage.seconds]
        whole = row.seconds
        shared = [("imports", report.imports.seconds, _most(dict(report.imports.packages)))]
        if is_alone:
            whole = report.waited + report.start_seconds
            shared.insert(0, ("start of Python", report.start_seconds, ""))
        lines = [line for line in shared if line[1] and is_alone] + stages
        lines.append(("the rest", whole - sum(seconds for _, seconds, _ in lines), _REST))
        yield f"  {row.name}  {duration(whole)}"
        for name, seconds, parts in lines:
            yield from wrap(f"{name:15} {duration(seconds):>8}{parts and f'  {parts}'}", width, "    ", " " * 31)


_REST = "starting and ending processes, this report"


def _parts(stage: StageResult) -> str:
    found = _most(dict(stage.parts))
    compiled, cached = (stage.counts.get(name, 0) for name in ("compilations", "cache hits"))
    return f"{found}; {compiled} programs compiled, {cached} from the cache" if compiled or cached else found


def _most(parts: dict[str, float]) -> str:
    """Returns parts with their seconds, those that took longest first, the small ones together."""
    whole = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    shown = [(name, seconds) for name, seconds in ordered if seconds >= _SHOWN * whole]
    others = whole - sum(seconds for _, seconds in shown)
    texts = [f"{name} {seconds:.1f}" for name, seconds in shown]
    return ", ".join([*texts, f"and less {others:.1f}"] if others >= 0.05 else texts)
