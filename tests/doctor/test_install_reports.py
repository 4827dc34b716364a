"""What users reported about installing T5X is explained: the package that is wrong first, and a command that cures it.

Each folder of ``reports`` is a report: ``job.log`` is what pip or an import printed, and ``cured/job.log`` what they
print after the cure; where the environment shows the mistake, ``installed`` has its distributions.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from test_doctor import environment

from t5x_harness.commands.main import main
from t5x_harness.doctor import diagnose

REPORTS = {
    path.parent.name: tomllib.loads(path.read_text()) for path in Path(__file__).parent.glob("reports/*/report.toml")
}
LOGS = sorted(name for name, report in REPORTS.items() if report["stage"] == "log")
ENVIRONMENTS = sorted(name for name, report in REPORTS.items() if report["stage"] == "doctor")


def explained(folder: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> tuple[int, str]:
    status = main([*command, str(folder / "job.log")])
    return status, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("command", [("doctor", "--explain"), ("explain", "--log")], ids="-".join)
def test_a_log_names_what_is_wrong_and_the_command_that_cures_it(
    name: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    report, folder = REPORTS[name], Path(__file__).parent / "reports" / name
    status, text = explained(folder, capsys, command)
    assert status == 0
    assert text.startswith(f"{folder / 'job.log'}:"), text
    first, _, rest = text.partition(" in the log: ")
    assert first.partition(": ")[2].startswith(f"{report['code']}: {report['message']}"), text
    cure = rest.partition(" command: ")[2]
    assert cure.startswith("python -m pip install --constraint"), text
    assert report["fix"] in cure, text
    status, text = explained(folder / "cured", capsys, command)
    assert status == 1
    assert "no known text was found" in text


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_shows_what_is_wrong(name: str) -> None:
    report: dict[str, Any] = REPORTS[name]

    def found(installed: dict[str, str]) -> list[tuple[str, str]]:
        looked_at = environment({package: (version, []) for package, version in installed.items()})
        findings = [(d.code, f) for d in diagnose(looked_at) for f in d.findings]
        return [
            (f.message, f.fix) for code, f in findings if code == report["code"] and "not installed" not in f.message
        ]

    [(message, fix)] = found(report["installed"])
    assert message.startswith(report["message"])
    assert report["fix"] in fix
    assert found(report["cured"]["installed"]) == []


def test_every_report_about_installing_is_here() -> None:
    numbers = {int(name[:2]) for name in REPORTS}
    assert numbers == {1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 42}
