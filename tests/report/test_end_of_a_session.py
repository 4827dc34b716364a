"""What pytest prints at the end: a table that fits; below it what the failures did not say, each thing once."""

from __future__ import annotations

import dataclasses
import json

import pytest

from t5x_harness.report import Report
from t5x_harness.report.brief import render_brief
from t5x_harness.report.terminal import run_failure
from t5x_harness.spec import (
    Change,
    Checkpoint,
    Finding,
    Location,
    Measure,
    Mode,
    Outcome,
    Reason,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

ERROR = Finding("SEQ19", Severity.ERROR, Stage.RESOLVE, "no split 'x'", Location("a.gin", 3), "use 'y'")
WARNING = Finding("GIN01", Severity.WARNING, Stage.LINT, "nothing reads X", Location("base.gin", 9))
MEMORY = "activations: their memory"
SHRUNK = (Change("TRAIN_STEPS", "100", "4", Reason.SHRINK), Change("BATCH_SIZE", "64", "8", Reason.SHRINK))
SANDBOX = Change("MODEL_DIR", "%gin.REQUIRED", "'runs/1'", Reason.SANDBOX)


def trained(name: str, **fields: object) -> RunResult:
    """A train run of which every stage passed."""
    asked = [stage for stage in Stage if stage is not Stage.AOT]
    stages = [StageResult(stage, Outcome.PASSED, exercised=1, seconds=5.0) for stage in asked]
    stages[0] = dataclasses.replace(stages[0], findings=(WARNING,) if name == "warned" else ())
    stages[2] = dataclasses.replace(
        stages[2], facts=(("mesh", "data 8 x model 1"),), not_checked=(MEMORY,), changes=(*SHRUNK, SANDBOX)
    )
    return RunResult(RunSpec((f"{name}.gin",), mode=Mode.TRAIN), tuple(stages), **fields)  # type: ignore[arg-type]


FAILED = RunResult(
    RunSpec(("broken.gin",), mode=Mode.EVAL),
    (
        StageResult(Stage.LINT, Outcome.PASSED, exercised=1),
        StageResult(Stage.RESOLVE, Outcome.FAILED, (ERROR,), log_tail="chatter"),
        StageResult(Stage.PLAN, Outcome.NOT_RUN, not_checked=("plan: not run, because resolve failed",)),
    ),
)


def test_one_run_lists_what_was_changed() -> None:
    assert render_brief(Report((trained("one", standins=("CHECKPOINT_PATH: 'gs://b/c'",)),)), width=100) == (
        """\
run  mode   slice                  lint  resolve  plan  train  eval  infer  time  findings
one  train  v3-8 data 8 x model 1  ok    ok       ok    ok     ok    ok     30 s  -

shrunk to run here: TRAIN_STEPS = 4 (was 100), BATCH_SIZE = 8 (was 64)
stand-ins, for what cannot be reached here:
  CHECKPOINT_PATH: 'gs://b/c'
not checked:
  activations: their memory
"""
    )


def test_the_steps_that_a_promoted_test_asks_for_are_listed() -> None:
    plan = StageResult(
        Stage.PLAN, Outcome.PASSED, changes=(Change("TRAIN_STEPS", "100", "20", Reason.STEPS), SHRUNK[1])
    )
    text = render_brief(Report((RunResult(RunSpec(("one.gin",), mode=Mode.TRAIN), (plan,)),)), width=100)
    assert "\nsteps that the test asks for: TRAIN_STEPS = 20 (was 100)\n" in text
    assert "\nshrunk to run here: BATCH_SIZE = 8 (was 64)\n" in text


def test_several_runs_say_each_thing_once() -> None:
    runs = [trained(name) for name in ("a", "b", "c", "warned", "warned")]
    text = render_brief(Report((*runs, FAILED)), width=100)
    assert text.count(MEMORY) == 1
    assert "  activations: their memory (a, b and 3 more)\n" in text
    assert "shrunk to run here: 10 values in 5 runs (-v lists them)\n" in text
    assert text.count("base.gin:9: warning GIN01: nothing reads X") == 1
    for told_above in ("SEQ19", "chatter", "not run"):
        assert told_above not in text


def test_what_is_true_of_every_run_names_none() -> None:
    assert "  activations: their memory (every run)\n" in render_brief(Report((trained("a"), trained("b"))), width=100)


@pytest.mark.parametrize("width", [78, 80, 100, 120, 200])
def test_names_are_not_cut_while_there_is_something_else_to_leave_out(width: int) -> None:
    lines = render_brief(Report((trained("pretrain_span_corruption"), trained("b"))), width=width).splitlines()
    assert lines[1].startswith("pretrain_span_corruption ")
    assert "ok    ok     ok    ok" in lines[1]
    assert max(map(len, lines)) <= width


def test_a_failed_run_tells_its_stage_and_what_was_left_out() -> None:
    assert run_failure(FAILED) == (
        "SEQ19: resolve of broken failed\na.gin:3: error SEQ19: no split 'x'\n    fix: use 'y'\nnot run after it: plan"
    )


def test_a_finding_without_a_line_names_its_binding() -> None:
    given = dataclasses.replace(ERROR, location=None, binding="utils.DatasetConfig.split")
    result = dataclasses.replace(FAILED, stages=(StageResult(Stage.RESOLVE, Outcome.FAILED, (given,)),))
    assert "\nutils.DatasetConfig.split: error SEQ19: " in run_failure(result)


def test_the_log_is_shown_only_where_no_finding_explains() -> None:
    unexplained = dataclasses.replace(ERROR, code="RUN01")
    stage = StageResult(Stage.TRAIN, Outcome.FAILED, (unexplained,), log_tail="last words")
    assert "  | last words" in run_failure(dataclasses.replace(FAILED, stages=(stage,)))


def test_a_result_survives_json() -> None:
    result = trained(
        "a",
        steps=4,
        metrics={"train/loss": {2: 1.5}},
        checkpoints=(Checkpoint(4, "m/checkpoint_4", 9),),
        predictions=({"prediction": "x"},),
        log="run.log",
        standins=("x",),
    )
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_what_was_compiled_is_shown_with_memory_and_price() -> None:
    measures = {"fits": 1.0, "hbm_peak": 5e9, "hbm_needed": 5e9, "hbm_usable": 16e9, "hbm_headroom": 11e9}
    measures |= {"chip_hours_at_least": 12.0, "usd_at_least": 13.2}
    stage = StageResult(
        Stage.AOT, Outcome.PASSED, exercised=1, measures=tuple(Measure(n, v, of="train") for n, v in measures.items())
    )
    text = render_brief(Report((RunResult(RunSpec(("run.gin",)), (stage,)),)), width=120)
    assert (
        "compiled at full size:\n  v3-8: train fits, peak 4.66 GiB, headroom 10.2 GiB of 14.9 GiB, at least 12" in text
    )
    assert "12 chip-hours, 13.20 USD by the list" in text
