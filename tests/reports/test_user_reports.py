"""What users reported is found, with its cause and its fix, and the cured project of each report is quiet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun
from report_cases import Report, reports
from shared_process import SharedProcesses

from t5x_harness.commands.main import main
from t5x_harness.spec import Hosts, RunSettings, RunSpec, Severity, Stage
from t5x_harness.workers.zygote import Zygote

FOUND = [report for report in reports() if report.stage and not report.installed]
QUICK = ("lint", "log", "doctor")
SHARED = ("resolve", "plan")
CONVERT = "convert"


def _cases(*, quick: bool) -> list[object]:
    chosen = [report for report in FOUND if (report.stage in QUICK) == quick]
    return [pytest.param(report, id=report.folder.name, marks=_marks(report)) for report in chosen]


def _marks(report: Report) -> list[pytest.MarkDecorator]:
    if report.stage in ("lint", "log"):
        return []
    is_quick = report.stage in ("doctor", *SHARED, CONVERT)
    return [pytest.mark.stack] if is_quick else [pytest.mark.stack, pytest.mark.journey]


Said = tuple[str, str, str, Severity | None]
"""A code, its message, its fix, and its severity, if it has one."""

Ask = Callable[[Report], list[Said]]
RunProject = Callable[..., list[Said]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Returns a function that gives a project to a command that needs no run, and returns what it prints."""

    def run(report: Report) -> list[Said]:
        monkeypatch.chdir(report.folder)
        for name, value in report.variables.items():
            monkeypatch.setenv(name, value)
        if report.stage == "log":
            main(["explain", "--log", "job.log"])
            return _printed(report, capsys.readouterr().out)
        asked = ["lint", "run.gin", "--slice", report.slice] if report.stage == "lint" else ["doctor"]
        main([*asked, "--format", "json"])
        printed = json.loads(capsys.readouterr().out)
        if report.stage == "lint":
            return [_said(finding["code"], finding) for finding in printed["findings"]]
        return [_said(check["code"], finding) for check in printed["checks"] for finding in check["findings"]]

    return run


def _said(code: str, finding: Mapping[str, str]) -> Said:
    return code, finding["message"], finding["fix"], Severity(finding["severity"])


def _printed(report: Report, text: str) -> list[Said]:
    """Returns what ``explain --log`` prints, as one finding if it has the code of the report."""
    words = " ".join(text.split())
    _, code, rest = words.partition(f" {report.code}: ")
    message, _, fix = rest.partition(" fix: ")
    return [(report.code, message, fix, None)] if code else []


@pytest.mark.parametrize("report", _cases(quick=True))
def test_a_report_is_explained_without_a_run(report: Report, ask: Ask, tmp_path: Path) -> None:
    _is_explained(report, ask(report.write(tmp_path / "reported", cured=False)))
    _is_quiet(report, ask(report.write(tmp_path / "cured", cured=True)))


@pytest.fixture
def run_project(
    zygote: Zygote,
    shared_processes: SharedProcesses,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> RunProject:
    """Returns a function that runs a project up to the stage of its report, and returns all findings."""
    from checkpoint_writer import write_checkpoint  # needs the stack

    def run(report: Report, *, cured: bool) -> list[Said]:
        place = tmp_path / ("cured" if cured else "reported")
        project = report.write(place, cured=cured)
        for folder, config in project.checkpoints.items():
            if cured:  # the same run wrote it
                shutil.copytree(tmp_path / "reported" / folder, place / folder)
            else:
                write_checkpoint(zygote, place, folder, config)
        if project.stage == CONVERT:
            return _converted(place, capsys)
        settings = dict(project.settings)
        if "hosts" in settings:
            settings["hosts"] = Hosts(settings["hosts"])
        spec = RunSpec(
            ("run.gin",),
            slice=project.slice,
            runtime=t5x_in_use.name,
            python_path=(str(place),),
            cwd=str(place),
            settings=RunSettings(**settings),
        )
        is_shared = project.stage in SHARED and not project.own_process
        processes = shared_processes if is_shared else zygote
        with LocalRun(
            spec, zygote=processes, workspace=place / "run", timeout=project.timeout, env=project.variables or None
        ) as running:
            running.stage(Stage(project.stage))
            result = running.result()
        return [(f.code, f.message, f.fix, f.severity) for stage in result.stages for f in stage.findings]

    return run


@pytest.mark.parametrize("report", _cases(quick=False))
def test_a_report_is_explained_by_a_run(report: Report, run_project: RunProject) -> None:
    _is_explained(report, run_project(report, cured=False))
    _is_quiet(report, run_project(report, cured=True))


def _converted(place: Path, capsys: pytest.CaptureFixture[str]) -> list[Said]:
    """Converts the checkpoint of a project; what is refused is one finding without a code."""
    output = ["--to", "transformers", "--output", f"{place}/transformers"]
    if main(["convert", f"{place}/pretrained/checkpoint_1000", *output, f"--gin_file={place}/run.gin"]) == 0:
        return []
    said = " ".join(capsys.readouterr().err.split())
    return [("", said, said, Severity.ERROR)]


def _is_explained(report: Report, found: list[Said]) -> None:
    own = [(message, fix) for code, message, fix, _ in found if code == report.code]
    assert any(report.message in message and report.fix in fix for message, fix in own), _listed(found)


def _is_quiet(report: Report, found: list[Said]) -> None:
    loud = [said for said in found if said[3] in (None, Severity.ERROR) or said[0] == report.code]
    loud = [said for said in loud if said[0] not in report.also]
    assert loud == [], f"the cured project has findings, too:{_listed(loud)}"


def _listed(found: list[Said]) -> str:
    return "".join(f"\n{code} {severity}: {message}\n    fix: {fix}" for code, message, fix, severity in found)
