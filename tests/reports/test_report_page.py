"""The page of the reports is up to date, and every report is on it."""

from report_cases import address, reports
from report_page import ALL, PAGE, page


def test_the_page_is_what_the_reports_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/report_page.py"


def test_every_report_is_found_or_has_a_reason() -> None:
    for report in reports():
        assert bool(report.stage) != bool(report.why_not), report.folder.name
        assert bool(report.stage) == bool(report.message and report.fix), report.folder.name
        assert all(map(address, report.threads))
    assert {report.number for report in reports()} == {*ALL}
