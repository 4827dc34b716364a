"""What users reported about installing T5X is explained: the package that is wrong first, and a command that cures it.

In tests/reports, these are the logs of pip and of imports, and the environments with a list of distributions.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from report_cases import Report, reports
from test_doctor import environment

from t5x_harness.commands.main import main
from t5x_harness.doctor import diagnose

INSTALLED = {*range(1, 7), *range(8, 14), 42}
"""The numbers of the reports."""

ABOUT = [report for report in reports() if report.number in INSTALLED]
LOGS = [pytest.param(report, id=report.folder.name) for report in ABOUT if report.stage == "log"]
ENVIRONMENTS = [pytest.param(report, id=report.folder.name) for report in ABOUT if report.installed]


def explained(folder: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> tuple[int, str]:
    status = main([*command, str(folder / "job.log")])
    return status, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("report", LOGS)
@pytest.mark.parametrize("command", [("doctor", "--explain"), ("explain", "--log")], ids="-".join)
def test_a_log_names_what_is_wrong_and_the_command_that_cures_it(
    report: Report, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = report.folder
    status, text = explained(folder, capsys, command)
    assert status == 0
    assert text.startswith(f"{folder / 'job.log'}:"), text
    first, _, rest = text.partition(" in the log: ")
    assert first.partition(": ")[2].startswith(f"{report.code}: {report.message}"), text
    cure = rest.partition(" command: ")[2]
    assert cure.startswith("python -m pip install --constraint"), text
    assert report.fix in cure, text
    status, text = explained(folder / "cured", capsys, command)
    assert status == 1
    assert "no known text was found" in text


@pytest.mark.parametrize("report", ENVIRONMENTS)
def test_an_environment_shows_what_is_wrong(report: Report) -> None:
    def found(installed: Mapping[str, str]) -> list[tuple[str, str]]:
        looked_at = environment({package: (version, []) for package, version in installed.items()})
        findings = [f for d in diagnose(looked_at) if d.code == report.code for f in d.findings]
        return [(f.message, f.fix) for f in findings if "not installed" not in f.message]

    [(message, fix)] = found(report.installed)
    assert message.startswith(report.message)
    assert report.fix in fix
    assert found(report.cured["installed"]) == []


def test_every_report_about_installing_is_found() -> None:
    assert {report.number for report in ABOUT if report.stage} == INSTALLED
