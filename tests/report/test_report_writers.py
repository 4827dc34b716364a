"""The report says everything once, in every format, and fits the terminal."""

from __future__ import annotations

import json

import pytest

from t5x_harness.report import Report
from t5x_harness.report.json import document
from t5x_harness.report.json import render as render_json
from t5x_harness.report.terminal import render, stage_failure
from t5x_harness.spec import (
    Change,
    Finding,
    Location,
    Mode,
    Outcome,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

LOCATION = Location("t5x/configs/runs/pretrain.gin", 12, (Location("run.gin", 3), Location("base.gin", 7)))
ERROR = Finding(
    "GIN09",
    Severity.ERROR,
    Stage.LINT,
    "TRAIN_STEPS = 1.0 is a float",
    LOCATION,
    "write TRAIN_STEPS = 1",
    "TRAIN_STEPS",
)
WARNING = Finding("GIN01", Severity.WARNING, Stage.LINT, "nothing reads the macro X", Location("run.gin", 9))


def passed(stage: Stage, seconds: float, **fields: object) -> StageResult:
    return StageResult(stage, Outcome.PASSED, seconds=seconds, exercised=1, **fields)  # type: ignore[arg-type]


GOOD = RunResult(
    RunSpec(("configs/pretrain.gin",), mode=Mode.TRAIN),
    (
        passed(Stage.LINT, 0.1),
        passed(Stage.RESOLVE, 2.0, not_checked=("access to gs://b",)),
        passed(
            Stage.PLAN,
            1.0,
            facts=(("mesh", "data 8 x model 1"),),
            changes=(Change("network.T5Config.emb_dim", "768", "16", "shrink"),),
        ),
        passed(Stage.TRAIN, 65.0),
        passed(Stage.EVAL, 3.0),
        passed(Stage.INFER, 3.0),
    ),
    steps=4,
    metrics={"train/loss": {2: 1.5, 4: 1.25}},
    standins=("a vocabulary of 32000 pieces for gs://b/v.model", "a checkpoint at step 10"),
)
BAD = RunResult(
    RunSpec(("a/long_name_of_a_config.gin",), mode=Mode.EVAL, slice="v4-16"),
    (
        StageResult(Stage.LINT, Outcome.FAILED, findings=(ERROR, WARNING), seconds=0.2),
        StageResult(Stage.RESOLVE, Outcome.NOT_RUN, not_checked=("resolve: not run, because lint failed",)),
        StageResult(Stage.PLAN, Outcome.NOT_RUN, not_checked=("plan: not run, because lint failed",)),
    ),
    log="runs/log.txt",
)


WHOLE = """\
run                    mode   slice  lint    resolve  plan  train  eval  infer  time        findings
pretrain               train  v3-8   ok      ok       ok    ok     ok    ok     1 min 14 s  -
long_name_of_a_config  eval   v4-16  FAILED  -        -                         0.2 s       1 error, 1 warning

pretrain
changed for this run: network.T5Config.emb_dim = 16 (was 768; shrink)
made up, as it cannot be reached here:
  a vocabulary of 32000 pieces for gs://b/v.model
  a checkpoint at step 10
not checked: access to gs://b

long_name_of_a_config
t5x/configs/runs/pretrain.gin:12: error GIN09: TRAIN_STEPS = 1.0 is a float
    included from base.gin:7, from run.gin:3
    fix: write TRAIN_STEPS = 1
run.gin:9: warning GIN01: nothing reads the macro X
not checked: resolve, plan: not run, because lint failed
log: runs/log.txt

1 failed, 1 passed, 1 error, 1 warning in 1 min 14 s
"""


def test_the_whole_text() -> None:
    assert render(Report((GOOD, BAD)), width=110) == WHOLE


def test_the_mesh_is_shown_where_there_is_room() -> None:
    assert "v3-8 data 8 x model 1" in render(Report((GOOD,)), width=160)
    assert "data 8 x model 1" not in render(Report((GOOD, BAD)), width=110)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_lines_fit_the_terminal(width: int) -> None:
    text = render(Report((BAD,)), width=width)
    assert max(len(line) for line in text.splitlines()) <= max(width, 80)


def test_long_messages_wrap_between_words_only() -> None:
    path = "/a" * 60
    finding = Finding(
        "GIN16", Severity.ERROR, Stage.LINT, f"there is no gin file {path} in any folder", None, "look again"
    )
    result = RunResult(BAD.spec, (StageResult(Stage.LINT, Outcome.FAILED, findings=(finding,)),))
    text = render(Report((result,)), width=60)
    assert path in text
    assert "\n    fix: look again\n" in text


def test_colour_only_if_asked() -> None:
    assert "\x1b" not in render(Report((GOOD, BAD)))
    coloured = render(Report((GOOD, BAD)), color=True)
    assert "\x1b[31merror\x1b[0m \x1b[1mGIN09\x1b[0m" in coloured
    assert "\x1b[32mok" in coloured


def test_facts_are_shown_if_asked() -> None:
    assert "plan: mesh: data 8 x model 1" in render(Report((GOOD,)), facts=True)
    assert "plan: mesh:" not in render(Report((GOOD,)))


def test_runs_of_one_name_are_numbered() -> None:
    assert [row.name for row in Report((GOOD, GOOD, BAD)).rows][:2] == ["pretrain (1)", "pretrain (2)"]


def test_nothing_run_is_not_a_success() -> None:
    report = Report(())
    assert not report.passed
    assert render(report).endswith("nothing was run in 0.0 s\n")


def test_a_stage_failure_is_its_findings_and_the_end_of_the_log() -> None:
    log = "\n".join(f"line {n}" for n in range(30))
    result = StageResult(Stage.TRAIN, Outcome.FAILED, findings=(WARNING,), log_tail=log)
    text = stage_failure(result)
    assert text.startswith(
        "run.gin:9: warning GIN01: nothing reads the macro X\nthe last 20 lines of the log of train:\n"
    )
    assert text.endswith("  | line 29")
    assert "line 9\n" not in text


def test_a_stage_that_was_not_run_says_why() -> None:
    assert stage_failure(BAD.stages[1]) == "resolve: not run, because lint failed"
    assert stage_failure(StageResult(Stage.PLAN, Outcome.FAILED)) == "plan failed, and no finding says why"


def test_the_json_document() -> None:
    assert json.loads(render_json(Report((GOOD, BAD)))) == json.loads(json.dumps(document(Report((GOOD, BAD)))))
    found = json.loads(render_json(Report((GOOD, BAD))))
    assert set(found) == {"schema", "passed", "runs", "findings", "not_checked"}
    assert (found["schema"], found["passed"]) == (1, False)
    assert [(r["name"], r["outcome"], r["mode"], r["slice"]) for r in found["runs"]] == [
        ("pretrain", "passed", "train", "v3-8"),
        ("long_name_of_a_config", "failed", "eval", "v4-16"),
    ]
    assert found["runs"][0]["metrics"] == {"train/loss": {"2": 1.5, "4": 1.25}}
    assert found["findings"][0] == {
        "run": "long_name_of_a_config",
        "code": "GIN09",
        "severity": "error",
        "stage": "lint",
        "message": "TRAIN_STEPS = 1.0 is a float",
        "location": {
            "file": "t5x/configs/runs/pretrain.gin",
            "line": 12,
            "included_from": [
                {"file": "run.gin", "line": 3, "included_from": []},
                {"file": "base.gin", "line": 7, "included_from": []},
            ],
        },
        "fix": "write TRAIN_STEPS = 1",
        "binding": "TRAIN_STEPS",
    }
    assert found["not_checked"][0] == {"run": "pretrain", "text": "access to gs://b"}
    # What was written can be read back into the shared values.
    assert StageResult.from_json(found["runs"][1]["stages"][0]) == BAD.stages[0]
