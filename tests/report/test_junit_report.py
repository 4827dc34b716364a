"""JUnit's XML of the commands: what pytest's own file says of the same stages."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sample_reports import BAD, GOOD

from t5x_harness.report import Report
from t5x_harness.report.junit import render
from t5x_harness.version import __version__


def _properties(element: ElementTree.Element) -> list[tuple[str | None, str | None]]:
    return [(p.get("name"), p.get("value")) for p in element.findall("properties/property")]


def test_each_stage_is_a_test_case() -> None:
    (suite,) = ElementTree.fromstring(render(Report((GOOD, BAD))))
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
    (suite,) = ElementTree.fromstring(render(Report((BAD,))))
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
    (suite,) = ElementTree.fromstring(render(Report((dataclasses.replace(GOOD, spec=spec),))))
    assert ("t5x.runtime", "installed T5X unknown version") in _properties(suite)


def test_nothing_run_is_a_document_too() -> None:
    assert ElementTree.fromstring(render(Report(()))).find("testsuite") is not None
