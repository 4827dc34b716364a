"""The JSON document follows its schema; values that cross processes as JSON come back with their types."""

import dataclasses
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import BAD, GOOD, report_of

from t5x_harness.report.json import SCHEMA, SCHEMA_FILE, document, render
from t5x_harness.report.report import Report
from t5x_harness.spec import (
    Change,
    Changed,
    Finding,
    Imports,
    Location,
    Mode,
    Outcome,
    Reason,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

BOTH = Report((GOOD, BAD))


def check(text: str) -> Any:
    """Reads a document as strict programs do, and checks it against the schema."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON")

    value = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate(value)
    return value


def test_the_document() -> None:
    found = check(render(BOTH))
    assert list(found) == ["schema", "passed", "seconds", "import_seconds", "findings", "not_checked", "runs"]
    assert (found["schema"], found["passed"]) == (SCHEMA, False) == (2, False)
    assert [(r["name"], r["outcome"], r["mode"], r["slice"]) for r in found["runs"]] == [
        ("pretrain", "passed", "train", "v3-8"),
        ("long_name_of_a_config", "failed", "eval", "v4-16"),
    ]
    assert found["not_checked"][0] == {"run": "pretrain", "text": "access to gs://b"}
    assert found["runs"][0]["metrics"] == {"train/loss": {"2": 1.5, "4": "nan"}}
    plan = found["runs"][0]["stages"][2]
    assert plan["facts"] == [
        {"name": "mesh", "value": "data 8 x model 1"},
        {"name": "axes", "columns": ["axis", "mesh", "size"], "rows": [["embed", "-", 8], ["mlp", "model", 2]]},
    ]
    assert plan["changes"] == [
        {"binding": "network.T5Config.emb_dim", "before": "768", "after": "16", "why": "shrink", "what": "binding"}
    ]
    assert [stage["outcome"] for stage in found["runs"][1]["stages"]] == ["failed", "not run", "not run"]


def test_numbers_are_numbers_with_units() -> None:
    good, bad = check(render(BOTH))["runs"]
    assert good["mesh"] == {"data": 8, "model": 1}
    assert (good["steps"], good["planned_steps"]) == (4, {"to_train": 2000})
    assert (bad["mesh"], bad["steps"], bad["planned_steps"]) == (None, None, None)
    of_stage = {stage["stage"]: stage for stage in good["stages"]}
    assert of_stage["plan"]["exercised"] == {"count": 1, "of": "arrays planned"}
    assert of_stage["train"]["exercised"] == {"count": 1, "of": "steps trained"}
    measures = {measure["name"]: measure for measure in of_stage["plan"]["measures"]}
    assert measures["parameters"] == {
        "name": "parameters",
        "value": 60506624,
        "unit": "elements",
        "of": "",
        "step": None,
    }
    assert (measures["learning_rate"]["value"], measures["learning_rate"]["step"]) == ("nan", 0)


def test_the_seconds_are_those_that_were_waited() -> None:
    found = check(render(Report((GOOD,), seconds=81.5, imports=Imports(60.5))))
    assert (found["seconds"], found["import_seconds"]) == (81.5, 60.5)


def test_a_finding_is_flat_and_says_everything() -> None:
    assert list(document(BOTH)["findings"][0].items()) == [
        ("code", "GIN09"),
        ("severity", "error"),
        ("stage", "lint"),
        ("file", "t5x/configs/runs/pretrain.gin"),
        ("line", 12),
        ("included_from", [{"file": "run.gin", "line": 3}, {"file": "base.gin", "line": 7}]),
        ("message", "TRAIN_STEPS = 1.0 is a float"),
        ("fix", "write TRAIN_STEPS = 1"),
        ("binding", "TRAIN_STEPS"),
        ("edits", [{"file": "run.gin", "first": 4, "last": 4, "text": "TRAIN_STEPS = 1\n"}]),
        ("run", "long_name_of_a_config"),
    ]
    assert [f["severity"] for f in document(BOTH)["findings"]] == ["error", "warning", "note"]


def test_a_finding_without_a_line_has_nulls() -> None:
    finding = Finding("RUN01", Severity.ERROR, Stage.TRAIN, "the process died")
    (found,) = check(render(report_of(finding)))["findings"]
    assert {key: found[key] for key in ("file", "line", "fix", "binding", "included_from", "edits")} == {
        "file": None,
        "line": None,
        "fix": None,
        "binding": None,
        "included_from": [],
        "edits": [],
    }


def test_each_binding_says_where_its_value_comes_from_and_what_it_replaced() -> None:
    macro, parameter = document(BOTH)["runs"][0]["bindings"]
    chain = [{"file": "run.gin", "line": 3}, {"file": "base.gin", "line": 7}]
    assert list(macro.items()) == [
        ("name", "X"),
        ("configurable", None),
        ("value", "7"),
        ("file", "--gin bindings"),
        ("line", 1),
        ("included_from", []),
        (
            "overridden",
            [{"value": "6", "file": "t5x/configs/runs/pretrain.gin", "line": 12, "included_from": chain}],
        ),
    ]
    assert (parameter["configurable"], parameter["included_from"]) == ("t5x.utils.Y", chain)


def test_nothing_run_is_a_document_too() -> None:
    found = check(render(Report(())))
    assert (found["passed"], found["findings"], found["not_checked"], found["runs"]) == (False, [], [], [])


def test_the_schema_is_one_and_refuses_what_is_none_of_ours() -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    wrong = document(BOTH)
    wrong["findings"][0]["severity"] = "fatal"
    with pytest.raises(jsonschema.ValidationError, match="'fatal' is not one of"):
        jsonschema.validate(wrong, schema)


def test_every_stage_reason_and_severity_that_there_is_keeps_to_the_schema() -> None:
    findings = tuple(Finding("GIN01", severity, Stage.LINT, "a message") for severity in Severity)
    changes = tuple(Change("a.b", "1", "2", why, what) for why in Reason for what in Changed)
    stages = [
        StageResult(stage, outcome, findings, exercised=1, changes=changes) for stage in Stage for outcome in Outcome
    ]
    modes = [RunResult(RunSpec(("a.gin",), mode=mode), tuple(stages)) for mode in Mode]
    found = check(render(Report(tuple(modes))))
    assert [run["mode"] for run in found["runs"]] == list(Mode)
    assert [stage["exercised"]["of"] for stage in found["runs"][0]["stages"][::3]] == [stage.counts for stage in Stage]


@given(st.text(), st.text())
def test_any_text_survives(message: str, file: str) -> None:
    finding = Finding("GIN01", Severity.NOTE, Stage.LINT, message, Location(file, 1))
    (found,) = check(render(report_of(finding)))["findings"]
    assert (found["message"], found["file"]) == (message, file)


def test_a_result_comes_back_as_it_went() -> None:
    good, bad = (RunResult.from_json(json.loads(json.dumps(result.to_json()))) for result in (GOOD, BAD))
    assert bad == BAD
    assert json.dumps(good.to_json()) == json.dumps(GOOD.to_json())  # NaN is not equal to itself
    plan = good.stages[2]
    assert isinstance(plan.measures[0].value, int)
    assert (plan.changes, plan.tables, good.bindings) == (GOOD.stages[2].changes, GOOD.stages[2].tables, GOOD.bindings)
    assert (plan.changes[0].why, good.spec.mode) == (Reason.SHRINK, Mode.TRAIN)
    assert isinstance(bad.stages[0].findings[0].severity, Severity)


def test_fields_that_another_release_added_or_did_not_have_are_no_error() -> None:
    value = {"binding": "A", "before": "1", "after": "2", "why": "given", "since": 3}
    assert Change.from_json(value) == Change("A", "1", "2", Reason.GIVEN)
    assert Location.from_json({"file": "run.gin", "line": 3}) == Location("run.gin", 3)


COUNTS = {"traces": 9, "lowerings": 4, "compilations": 1, "cache hits": 3, "modules": 5302}


def test_timings_are_there_if_they_were_measured() -> None:
    assert "parts" not in check(render(Report((GOOD,))))["runs"][0]["stages"][0]
    stage = dataclasses.replace(GOOD.stages[0], parts={"tracing": 1.5, "other": 0.2}, counts=COUNTS)
    timed = dataclasses.replace(GOOD, stages=(stage, *GOOD.stages[1:]))
    found = check(render(Report((timed,), imports=Imports(9.5, {"tensorflow": 4.0, "jax": 1.0}))))
    assert found["imports"] == {"tensorflow": 4.0, "jax": 1.0}
    assert found["runs"][0]["stages"][0]["parts"] == {"tracing": 1.5, "other": 0.2}
    assert found["runs"][0]["stages"][0]["counts"] == COUNTS
