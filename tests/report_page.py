"""Writes docs/user-reports.md, the table of all reports, from the reports in tests/reports.

python tests/report_page.py
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from report_cases import Report, address, reports

PAGE = Path(__file__).parents[1] / "docs" / "user-reports.md"
ALL = range(1, 50)
"""The numbers of the reports."""

_HEAD = """\
# What users of T5X reported

These are 49 public reports of people who used T5X, SeqIO or TPUs, and what the harness says about each. A report
that is found is a small project in `tests/reports/`, with the config, module, environment or log that its user had.
A test runs the project: the cause is named, with the fix, and the same project without the mistake is quiet.

The page is made by `python tests/report_page.py`.
"""
_COLUMNS = ("report", "what the user saw", "found by", "code", "message, in part")
_COMMANDS = {"log": "`explain --log`", "doctor": "`doctor`", "convert": "`convert`"}


def page() -> str:
    """Returns the page as Markdown."""
    found = [report for report in reports() if report.stage]
    others = [report for report in reports() if not report.stage]
    numbers = {report.number for report in found}
    parts = [_HEAD, f"{len(numbers)} of the 49 are found.", ""]
    parts += _table(_COLUMNS, (_row(report) for report in found))
    parts += ["", "## Not found", "", *_table((*_COLUMNS[:2], "why not"), (_why_not(report) for report in others))]
    return "\n".join(parts) + "\n"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _row(report: Report) -> tuple[str, ...]:
    how = _COMMANDS.get(report.stage, report.stage)
    has_page = (PAGE.parent / "rules" / f"{report.code}.md").exists()
    code = f"[{report.code}](rules/{report.code}.md)" if has_page else report.code or "-"
    return _threads(report), report.saw, how, code, report.message


def _why_not(report: Report) -> tuple[str, ...]:
    return _threads(report), report.saw, report.why_not


def _threads(report: Report) -> str:
    links = ", ".join(f"[{thread}]({address(thread)})" for thread in report.threads)
    return f"{report.number}: {links}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
