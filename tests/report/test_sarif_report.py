"""SARIF follows the standard and is the same on every machine; JUnit's XML matches pytest's for the same stages."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import BAD, GOOD, report_of

from t5x_harness.findings.printable import printable
from t5x_harness.report import junit, sarif
from t5x_harness.report.report import Report
from t5x_harness.report.sarif import FINGERPRINT
from t5x_harness.rulebook.codes import RUN_CODES, rules_by_code
from t5x_harness.rulebook.pages import page, rule_descriptors
from t5x_harness.spec import Edit, Finding, Location, Outcome, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.version import __version__

Lint = Callable[..., Report]


def document(report: Report) -> dict[str, Any]:
    return sarif.document(report, rule_descriptors)


def every(value: Any, key: str) -> Iterator[Any]:
    """Yields the values of a key, anywhere in a document."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            yield from every(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from every(item, key)


def check(log: dict[str, Any]) -> dict[str, Any]:
    """Checks the rules of SARIF 2.1.0 for the parts that are written here; returns the only run."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(text["text"] for key in ("shortDescription", "fullDescription", "help") for text in every(rules, key))
    assert all(isinstance(i["executionSuccessful"], bool) for i in run["invocations"])
    for level in every(run, "level"):
        assert level in ("none", "note", "warning", "error")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
        ids = [related["id"] for related in result.get("relatedLocations", ())]
        assert len(set(ids)) == len(ids)
        for fix in result.get("fixes", ()):
            assert fix["artifactChanges"]
            assert all(change["replacements"] for change in fix["artifactChanges"])
    for region in (*every(run, "region"), *every(run, "deletedRegion")):
        assert region["startLine"] >= 1
        assert region.get("startColumn", 1) >= 1
        assert (region.get("endLine", region["startLine"])) >= region["startLine"]
    for artifact in every(run, "artifactLocation"):
        assert artifact["uriBaseId"] in run["originalUriBaseIds"]
        path = unquote(artifact["uri"])
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert " " not in artifact["uri"]
    return run


def place(result: dict[str, Any]) -> tuple[str, int]:
    (location,) = result["locations"]
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def of(run: dict[str, Any], code: str) -> dict[str, Any]:
    (result,) = [result for result in run["results"] if result["ruleId"] == code]
    return result


def test_a_finding_has_its_line_its_include_chain_and_its_stage(lint: Lint) -> None:
    run = check(document(lint("run.gin")))
    result = of(run, "GIN09")
    assert place(result) == ("my%20configs/deep/base.gin", 3)
    assert result["level"] == "error"
    assert result["message"]["text"].startswith("TRAIN_STEPS = 1.5 is a float, and a whole number is needed")
    assert "\nfix: " in result["message"]["text"]
    (include,) = result["relatedLocations"]
    assert include["message"]["text"] == "included from here"
    assert include["physicalLocation"]["artifactLocation"]["uri"] == "my%20configs/run.gin"
    assert include["physicalLocation"]["region"] == {"startLine": 2}
    assert result["properties"] == {"stage": "lint", "runs": ["run"], "binding": "TRAIN_STEPS"}
    assert place(of(run, "GIN02")) == ("my%20configs/run.gin", 3)
    assert of(run, "GIN02")["level"] == "warning"


def test_codes_are_described_as_on_their_pages(lint: Lint) -> None:
    driver = check(document(lint("run.gin")))["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("t5x-harness", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["GIN02", "GIN09"]  # and no code without a finding
    rules = rules_by_code()
    described = {rule["id"]: rule for rule in rule_descriptors([*rules, *RUN_CODES])}
    for code, (rule, *_) in rules.items():
        assert described[code]["shortDescription"]["text"] == rule.title
        assert described[code]["fullDescription"]["text"] == rule.why
        assert described[code]["help"]["markdown"] == page(code, rules[code])
        assert described[code]["defaultConfiguration"]["level"] == rule.severity
    assert described["RUN01"]["shortDescription"]["text"] == RUN_CODES["RUN01"]


def test_a_code_of_somebody_elses_is_an_id_alone() -> None:
    finding = Finding("MINE1", Severity.ERROR, Stage.TRAIN, "no good")
    assert {"id": "MINE1"} in check(document(report_of(finding)))["tool"]["driver"]["rules"]


def test_what_is_outside_the_repository_is_shown_at_the_line_that_leads_there(lint: Lint, folder: Path) -> None:
    outside = folder.parent.parent / f"{folder.parent.name} elsewhere.gin"
    outside.write_text((folder / "deep" / "base.gin").read_text())
    (folder / "run.gin").write_text(f"\n\ninclude '{outside}'\n")
    result = of(check(document(lint("run.gin"))), "GIN09")
    assert place(result) == ("my%20configs/run.gin", 3)
    assert result["message"]["text"].startswith(f"{outside}:3: TRAIN_STEPS = 1.5 is a float")
    assert "relatedLocations" not in result


def test_a_binding_of_the_command_line_is_shown_at_the_beginning_of_the_config(lint: Lint) -> None:
    result = of(check(document(lint("run.gin", bindings=("TRAIN_STEPS = 2.5",)))), "GIN09")
    assert place(result) == ("my%20configs/run.gin", 1)
    assert result["message"]["text"].startswith("--gin bindings:1: TRAIN_STEPS = 2.5 is a float")


def test_a_finding_that_is_nowhere_in_the_repository_has_no_location(tmp_path: Path) -> None:
    finding = Finding("RUN01", Severity.ERROR, Stage.TRAIN, "the process died")
    assert check(document(report_of(finding, cwd=str(tmp_path))))["results"][0]["locations"] == []


def test_runs_that_share_a_faulty_include_share_the_result(lint: Lint, folder: Path) -> None:
    (folder / "other.gin").write_text("include 'deep/base.gin'\n")
    result = of(check(document(lint("run.gin", "other.gin"))), "GIN09")
    assert result["properties"]["runs"] == ["run", "other"]


def test_paths_do_not_depend_on_where_the_command_is_started(lint: Lint, folder: Path) -> None:
    from_above = check(document(lint("my configs/run.gin", cwd=folder.parent)))
    assert place(of(from_above, "GIN09")) == ("my%20configs/deep/base.gin", 3)
    assert place(of(from_above, "GIN02")) == ("my%20configs/run.gin", 3)
    assert str(folder.parent) not in sarif.render(lint("run.gin"), rule_descriptors)


def test_without_a_repository_paths_start_from_the_working_directory(lint: Lint, folder: Path) -> None:
    (folder.parent / ".git").rmdir()
    assert place(of(check(document(lint("run.gin"))), "GIN09")) == ("deep/base.gin", 3)


def fingerprints(report: Report) -> dict[str, str]:
    return {r["ruleId"]: r["partialFingerprints"][FINGERPRINT] for r in check(document(report))["results"]}


def test_fingerprints_stay_when_lines_move(lint: Lint, folder: Path) -> None:
    before = fingerprints(lint("run.gin"))
    for name in ("run.gin", "deep/base.gin"):
        path = folder / name
        path.write_text(f"# moved\n\n{path.read_text()}")
    assert fingerprints(lint("run.gin")) == before


def test_fingerprints_tell_findings_apart() -> None:
    findings = tuple(
        Finding("GIN16", Severity.ERROR, Stage.LINT, f"there is no {name}, see a.gin:{line}", Location("a.gin", line))
        for name in ("x", "y")
        for line in (1, 2)
    )
    found = [r["partialFingerprints"][FINGERPRINT] for r in check(document(report_of(*findings)))["results"]]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("edit", "region"),
    [
        (Edit("run.gin", 3, 3, "TYPE = 1\n"), {"startLine": 3, "startColumn": 1, "endLine": 4, "endColumn": 1}),
        (Edit("run.gin", 2, 3, ""), {"startLine": 2, "startColumn": 1, "endLine": 4, "endColumn": 1}),
        (Edit("run.gin", 2, 1, "X = 1\n"), {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 1}),
    ],
    ids=["replaced", "removed", "inserted"],
)
def test_edits_are_fixes(lint: Lint, edit: Edit, region: dict[str, int]) -> None:
    (fix,) = of(check(document(with_edits(lint("run.gin"), edit))), "GIN02")["fixes"]
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "my%20configs/run.gin", "uriBaseId": "%SRCROOT%"}
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": edit.text}}]
    assert fix["description"]["text"].startswith("remove it, or use %TYPO")


def test_a_fix_that_cannot_be_made_whole_is_none(lint: Lint) -> None:
    edits = (Edit("run.gin", 1, 1, ""), Edit("/elsewhere/a.gin", 1, 1, ""))
    assert "fixes" not in of(check(document(with_edits(lint("run.gin"), *edits))), "GIN02")


def with_edits(report: Report, *edits: Edit) -> Report:
    """Returns the report with these edits as the fix of its GIN02."""
    (result,) = report.results
    (stage,) = result.stages
    findings = tuple(dataclasses.replace(f, edits=edits) if f.code == "GIN02" else f for f in stage.findings)
    return Report((dataclasses.replace(result, stages=(dataclasses.replace(stage, findings=findings),)),))


def test_what_was_not_checked_is_said() -> None:
    (invocation,) = check(document(Report((GOOD, BAD))))["invocations"]
    assert invocation["executionSuccessful"] is True
    assert invocation["toolExecutionNotifications"] == [
        {"level": "note", "message": {"text": "pretrain: not checked: access to gs://b"}},
        {
            "level": "note",
            "message": {"text": "long_name_of_a_config: not checked: resolve, plan: not run, because lint failed"},
        },
    ]


def test_a_stage_that_failed_without_a_finding_is_said() -> None:
    report = report_of(stage=Stage.TRAIN, log_tail="last words")
    (notification,) = check(document(report))["invocations"][0]["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert "last words" in notification["message"]["text"]


def test_nothing_run_is_a_document_too() -> None:
    assert check(document(Report(())))["results"] == []
    assert ElementTree.fromstring(junit.render(Report(()))).find("testsuite") is not None


@given(st.text(min_size=1), st.integers(0, 10**6))
def test_any_finding_is_written(text: str, line: int) -> None:
    finding = Finding("GIN01", Severity.NOTE, Stage.LINT, text, Location(text, line), fix=text, binding=text)
    result = RunResult(RunSpec((text,)), (StageResult(Stage.LINT, Outcome.PASSED, (finding,)),))
    run = check(json.loads(sarif.render(Report((result,)), rule_descriptors)))
    shown = printable(f"{text}:{line}: {text}\nfix: {text}")
    assert run["results"][0]["message"]["text"] == shown


def _properties(element: ElementTree.Element) -> list[tuple[str | None, str | None]]:
    return [(p.get("name"), p.get("value")) for p in element.findall("properties/property")]


def test_each_stage_is_a_test_case() -> None:
    (suite,) = ElementTree.fromstring(junit.render(Report((GOOD, BAD))))
    assert {name: suite.get(name) for name in ("tests", "errors", "failures", "skipped")} == {
        "tests": "9",
        "errors": "0",
        "failures": "1",
        "skipped": "2",
    }
    assert ("t5x.harness", __version__) in _properties(suite)
    assert ("t5x.slice", "v3-8, v4-16") in _properties(suite)
    cases = suite.findall("testcase")
    assert [(c.get("classname"), c.get("name"), c.get("time")) for c in cases][5:7] == [
        ("configs/pretrain.gin", "infer", "3.000"),
        ("a/long_name_of_a_config.gin", "lint", "0.200"),
    ]
    planned = _properties(cases[2])
    assert planned[:2] == [("t5x.stage", "plan"), ("t5x.seconds", "1.000")]
    assert ("t5x.parameters", "60506624") in planned


def test_a_failure_is_its_findings_and_a_stage_left_out_is_skipped() -> None:
    (suite,) = ElementTree.fromstring(junit.render(Report((BAD,))))
    lint, resolve, _ = suite.findall("testcase")
    failure = lint.find("failure")
    assert failure is not None
    assert failure.get("message") == "GIN09: TRAIN_STEPS = 1.0 is a float (pretrain.gin:12)"
    assert (failure.text or "").startswith(
        "t5x/configs/runs/pretrain.gin:12: error GIN09: TRAIN_STEPS = 1.0 is a float"
    )
    assert ("t5x.finding", "GIN09 t5x/configs/runs/pretrain.gin:12") in _properties(lint)
    skipped = resolve.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "resolve: not run, because lint failed"


def test_the_t5x_is_that_of_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "t5x", raising=False)
    (tmp_path / "t5x").mkdir()
    for name in ("__init__", "partitioning"):
        (tmp_path / "t5x" / f"{name}.py").write_text("")
    spec = dataclasses.replace(GOOD.spec, cwd=str(tmp_path))
    (suite,) = ElementTree.fromstring(junit.render(Report((dataclasses.replace(GOOD, spec=spec),))))
    assert ("t5x.runtime", "installed T5X unknown version") in _properties(suite)
