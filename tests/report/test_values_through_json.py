"""Values cross processes as JSON: what comes back is what went in, down to the types of numbers."""

from __future__ import annotations

import json

from t5x_harness.spec import (
    Assignment,
    BoundValue,
    Change,
    Changed,
    Checkpoint,
    Edit,
    FactTable,
    Finding,
    Location,
    Measure,
    Mode,
    Outcome,
    Reason,
    RunResult,
    RunSettings,
    RunSpec,
    Severity,
    Stage,
    StageResult,
    StandInPolicy,
)

PLACE = Location("run.gin", 1, (Location("base.gin", 2),))
STAGE = StageResult(
    Stage.PLAN,
    Outcome.FAILED,
    (Finding("CKP01", Severity.ERROR, Stage.PLAN, "m", PLACE, "fix", "b", (Edit("run.gin", 1, 2, "x\n"),)),),
    (("mesh", "data 8"),),
    ("not seen",),
    (Change("MODEL_DIR", "'a'", "'b'", Reason.SANDBOX), Change("mesh", "8", "2", Reason.SHRINK, Changed.MESH)),
    exercised=3,
    measures=(Measure("parameters", 7), Measure("loss", 0.5, of="train", step=4)),
    tables=(FactTable("batches", ("of", "size"), (("train", 8, 0.5),)),),
)
RESULT = RunResult(
    RunSpec(
        ("run.gin",), ("A = 1",), mode=Mode.TRAIN, settings=RunSettings(until=Stage.PLAN, standins=StandInPolicy.ALL)
    ),
    (STAGE,),
    metrics={"train/loss": {4: 2.0}},
    checkpoints=(Checkpoint(4, "model/checkpoint_4", 10),),
    predictions=({"inputs": ["a"]},),
    bindings=(BoundValue("A", None, Assignment("1", PLACE), (Assignment("2", PLACE),)),),
)


def test_a_result_comes_back_as_it_went() -> None:
    text = json.dumps(RESULT.to_json())
    again = RunResult.from_json(json.loads(text))
    assert again == RESULT
    assert json.dumps(again.to_json()) == text
    assert isinstance(again.stages[0].measures[0].value, int)
    assert (again.stages[0].changes[0].why, again.spec.mode) == (Reason.SANDBOX, Mode.TRAIN)
    assert isinstance(again.stages[0].findings[0].severity, Severity)


def test_fields_that_another_release_added_or_did_not_have_are_no_error() -> None:
    value = {"binding": "A", "before": "1", "after": "2", "why": "given", "since": 3}
    assert Change.from_json(value) == Change("A", "1", "2", Reason.GIVEN)
    assert Location.from_json({"file": "run.gin", "line": 3}) == Location("run.gin", 3)
