"""The whole, the quiet and the brief text report say everything once, do not show notes, and fit the terminal."""

import dataclasses

import pytest
from sample_reports import BAD, ERROR, GOOD, NOTE, TABLE, WARNING

from t5x_harness.findings.text import columns
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import render, render_brief, render_quietly, run_failure, stage_failure
from t5x_harness.spec import (
    Change,
    Finding,
    Imports,
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

WHOLE = """\
run                    mode   slice  lint    resolve  plan  train  eval  infer  time        findings
pretrain               train  v3-8   ok      ok       ok    ok     ok    ok     1 min 14 s  -
long_name_of_a_config  eval   v4-16  FAILED  -        -                         0.2 s       1 error, 1 warning
mesh: data 8 x model 1 (pretrain)

pretrain
changed for this run: network.T5Config.emb_dim = 16 (was 768; shrink)
stand-ins, for what cannot be reached here:
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

1 failed, 1 passed, 1 error, 1 warning in 1 min 14 s; 1 note, -v shows it
"""


def test_the_whole_text() -> None:
    assert render(Report((GOOD, BAD)), width=110) == WHOLE


def test_what_has_no_room_in_the_table_stands_below_it() -> None:
    assert "v3-8 data 8 x model 1" in render(Report((GOOD,)), width=160)
    wide = dataclasses.replace(GOOD, spec=dataclasses.replace(GOOD.spec, gin_files=("a_config_with_a_name.gin",)))
    stages = (dataclasses.replace(GOOD.stages[0], findings=(WARNING, WARNING)), *GOOD.stages[1:])
    wide = dataclasses.replace(wide, stages=stages)
    head, _, *below = render(Report((wide,)), width=80).splitlines()
    assert head.split() == "run lint resolve plan train eval infer time findings".split()
    assert below[:3] == ["mode: train", "slice: v3-8", "mesh: data 8 x model 1"]
    other = dataclasses.replace(
        wide, spec=dataclasses.replace(wide.spec, slice="v4-16", mode=Mode.EVAL), stages=stages[:3]
    )
    below = render(Report((wide, other)), width=80).splitlines()[3:]
    assert below[0] == "mode: train (a_config_with_a_name (1)), eval (a_config_with_a_name (2))"
    assert below[1] == "mesh: data 8 x model 1"


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 140])
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


def test_runs_of_one_name_are_told_apart_by_where_they_come_from() -> None:
    def names(*origins: str) -> list[str]:
        return [row.name for row in Report((*[GOOD] * (len(origins) - 1), BAD), origins).rows]

    assert [row.name for row in Report((GOOD, GOOD, BAD)).rows][:2] == ["pretrain (1)", "pretrain (2)"]
    assert names("a.gin", "test_a.py::test_it", "b.gin") == ["a.gin", "test_a.py::test_it", "long_name_of_a_config"]
    assert names("a.gin", "test_it", "test_it", "b.gin")[:3] == ["a.gin", "test_it (1)", "test_it (2)"]


LOSSES = (
    Measure("loss", 69.71, of="train", step=1),
    Measure("loss", 64.0, of="train", step=4),
    Measure("loss", 5.25, of="training_eval/task", step=4),
    Measure("seconds", 3.0),
)
METRICS = (Measure("bleu", 0.0, of="task"), Measure("accuracy", 12.34567, of="task"))
TRAINED = dataclasses.replace(
    GOOD,
    stages=(
        *GOOD.stages[:3],
        dataclasses.replace(GOOD.stages[3], measures=LOSSES),
        dataclasses.replace(GOOD.stages[4], measures=METRICS),
        dataclasses.replace(
            GOOD.stages[5], changes=(Change("INFER_OUTPUT_DIR", "%gin.REQUIRED", "'runs/1'", Reason.GIVEN),)
        ),
    ),
)


def test_losses_and_metrics_are_told() -> None:
    lines = [
        "losses and metrics:",
        "  train/loss 69.71 at step 1, 64 at step 4",
        "  training_eval/task/loss 5.25 at step 4",
        "  task: bleu 0, accuracy 12.35",
    ]
    assert "\n".join(lines) in render(Report((TRAINED,)))
    assert "\n".join(lines) in render_brief(Report((TRAINED,)), width=100)
    assert "  task: bleu 0, accuracy 12.35 (pretrain)\n" in render_brief(Report((TRAINED, BAD)), width=100)


def test_what_the_harness_gave_in_the_place_of_a_command_line_is_told() -> None:
    given = "given by the harness, as by the command line of a job: INFER_OUTPUT_DIR = 'runs/1'\n"
    assert given in render(Report((TRAINED,)), notes=True)
    assert given.replace(" = 'runs/1'", "") in render(Report((TRAINED,)))
    assert given.replace(": INFER", ":\n  INFER").replace(" = 'runs/1'", "") in render_brief(
        Report((TRAINED,)), width=100
    )
    assert "  INFER_OUTPUT_DIR (pretrain)\n" in render_brief(Report((TRAINED, BAD)), width=100)


def test_the_time_is_the_one_that_was_waited_and_long_imports_are_named() -> None:
    waited = Report((dataclasses.replace(GOOD, seconds=80.0),), seconds=81.0, imports=Imports(61.0))
    imports = "importing T5X took 1 min 01 s of it; t5x-harness warm saves that for further runs\n"
    text = render(waited)
    assert "  1 min 20 s" in text.splitlines()[1]
    assert text.endswith(f"{imports}1 passed in 1 min 21 s\n")
    assert text.count("t5x-harness warm") == 1
    assert imports in render_brief(waited, width=100)
    assert "warm" not in render(dataclasses.replace(waited, imports=Imports(0.2)))
    assert render(dataclasses.replace(waited, imports=Imports(4.0, stay=True))).endswith(
        "importing T5X took 4.0 s; kept for 15 min (t5x-harness warm --stop ends it)\n1 passed in 1 min 21 s\n"
    )


def test_what_was_not_checked_of_several_runs_is_said_once() -> None:
    open_ = StageResult(Stage.LINT, Outcome.PASSED, not_checked=("CKP*: these rules need the whole run",))
    other = dataclasses.replace(open_, not_checked=(*open_.not_checked, "the module x"))
    names = ("a.gin", "b.gin", "c.gin")
    results = (RunResult(RunSpec((n,)), (other if n == "b.gin" else open_,)) for n in names)
    text = render(Report(tuple(results)))
    assert text.count("CKP*") == 1
    assert "\nnot checked of a, b, c: CKP*: these rules need the whole run\n" in text
    assert "\nb\nnot checked: the module x\n" in text


def test_quietly_only_the_findings_and_the_last_line() -> None:
    assert render_quietly(Report((GOOD, BAD))) == (
        """\
t5x/configs/runs/pretrain.gin:12: error GIN09: TRAIN_STEPS = 1.0 is a float
    included from base.gin:7, from run.gin:3
    fix: write TRAIN_STEPS = 1
run.gin:9: warning GIN01: nothing reads the macro X
1 failed, 1 passed, 1 error, 1 warning in 1 min 14 s; 1 note, -v shows it
"""
    )
    assert render_quietly(Report((TRAINED,))) == "1 passed in 1 min 14 s\n"


def test_what_failures_have_told_is_not_told_again() -> None:
    text = render(Report((BAD,)), notes=True, shown_above=True)
    assert "GIN09" not in text
    assert "GIN06" not in text
    assert "log: runs/log.txt" in text


def test_findings_come_first_and_tables_of_arrays_only_if_asked_for() -> None:
    facts = (("mesh", "data 8 x model 1"), ("arrays of a", TABLE), ("arrays of b", TABLE))
    plan = dataclasses.replace(GOOD.stages[2], facts=facts)
    lint = dataclasses.replace(GOOD.stages[0], findings=(WARNING,), facts=(("mode", "train"),))
    report = Report((dataclasses.replace(GOOD, stages=(lint, GOOD.stages[1], plan)),))
    lines = render(report, facts=True, width=120).splitlines()
    assert lines[3:8] == [
        "run.gin:9: warning GIN01: nothing reads the macro X",
        "  plan: mesh: data 8 x model 1",
        "  2 tables of arrays, -v shows them",
        "  lint: mode: train",
        "changed for this run: network.T5Config.emb_dim = 16 (was 768; shrink)",
    ]
    assert "  plan: arrays of b:" in render(report, facts=True, notes=True).splitlines()


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


def test_notes_are_only_counted_unless_they_are_asked_for() -> None:
    line = "--gin bindings:2: note GIN06: nothing opens the scope y"
    quiet, verbose = render(Report((BAD,))), render(Report((BAD,)), notes=True)
    assert line not in quiet
    assert quiet.splitlines()[1].endswith("1 error, 1 warning")
    assert quiet.endswith("in 0.2 s; 1 note, -v shows it\n")
    assert line in verbose.splitlines()
    assert verbose.splitlines()[1].endswith("1 error, 1 warning, 1 note")
    assert verbose.endswith("in 0.2 s\n")


def test_a_failed_stage_shows_notes_only_if_they_are_asked_for() -> None:
    assert "note" not in stage_failure(BAD.stages[0])
    assert stage_failure(BAD.stages[0], notes=True).endswith("note GIN06: nothing opens the scope y")


def test_a_green_run_with_notes_says_in_one_line_that_there_are_some() -> None:
    other = dataclasses.replace(NOTE, message="nothing opens the scope x")
    stages = (dataclasses.replace(GOOD.stages[0], findings=(NOTE, other)), *GOOD.stages[1:])
    report = Report((dataclasses.replace(GOOD, stages=stages),))
    for text in (render(report), render_brief(report, width=100)):
        assert "GIN06" not in text
        assert "2 notes, -v shows them\n" in text
    assert "note" not in render_brief(Report((GOOD,)), width=100)


def test_a_table_is_a_fact_that_keeps_its_lines() -> None:
    lines = render(Report((GOOD,)), facts=True).splitlines()
    start = lines.index("  plan: axes:")
    assert [line.removeprefix(" " * 6) for line in lines[start + 1 : start + 4]] == TABLE.splitlines()


def test_a_table_that_is_too_wide_breaks_between_cells_only() -> None:
    rows = [(f"layer {n}", "kernel of the attention's query", "encoder.layers", "embed, joined_kv") for n in range(3)]
    stages = (StageResult(Stage.PLAN, Outcome.PASSED, facts=(("parameters", columns(rows)),), exercised=1),)
    lines = render(Report((dataclasses.replace(GOOD, stages=stages),)), width=66, facts=True).splitlines()
    start = lines.index("  plan: parameters:")
    assert lines[start + 1 : start + 3] == [
        "      layer 0  kernel of the attention's query  encoder.layers",
        "          embed, joined_kv",
    ]
    assert len([line for line in lines if line == "          embed, joined_kv"]) == 3


@pytest.mark.parametrize("width", [79, 80, 100, 120])
@pytest.mark.parametrize("everything", [False, True])
def test_nothing_is_wider_than_the_terminal_but_words_that_cannot_be_broken(width: int, everything: bool) -> None:
    long = " ".join(["a rather long sentence of many words"] * 8)
    log = f"{long}\n    {long}\n/{'x' * 130}"
    failed = StageResult(Stage.TRAIN, Outcome.FAILED, log_tail=log, not_checked=(long,), facts=(("a fact", long),))
    findings = tuple(dataclasses.replace(WARNING, message=f"{long} {i}", fix=long) for i in range(12))
    noisy = dataclasses.replace(GOOD.stages[0], findings=findings)
    whole = dataclasses.replace(GOOD, stages=(noisy, *GOOD.stages[1:3], failed), standins=(long, long))
    report = Report((whole, BAD, GOOD))
    texts = [render(report, width=width, facts=everything, notes=everything)]
    texts += [render_quietly(report, width=width, notes=everything), render_brief(report, width=width)]
    texts += [stage_failure(stage, width=width, notes=everything) for stage in whole.stages]
    wide = [line for text in texts for line in text.splitlines() if len(line) > width]
    assert {line.split()[-1] for line in wide} <= {f"/{'x' * 130}"}, wide


MEMORY = "activations: their memory"
SHRUNK = (Change("TRAIN_STEPS", "100", "4", Reason.SHRINK), Change("BATCH_SIZE", "64", "8", Reason.SHRINK))
SANDBOX = Change("MODEL_DIR", "%gin.REQUIRED", "'runs/1'", Reason.SANDBOX)


def trained(name: str, **fields: object) -> RunResult:
    """Returns the result of a train run in which every stage passed."""
    asked = [stage for stage in Stage if stage not in (Stage.AOT, Stage.RESUME)]
    stages = [StageResult(stage, Outcome.PASSED, exercised=1, seconds=5.0) for stage in asked]
    stages[0] = dataclasses.replace(stages[0], findings=(WARNING,) if name == "warned" else ())
    stages[2] = dataclasses.replace(
        stages[2], facts=(("mesh", "data 8 x model 1"),), not_checked=(MEMORY,), changes=(*SHRUNK, SANDBOX)
    )
    return RunResult(RunSpec((f"{name}.gin",), mode=Mode.TRAIN), tuple(stages), **fields)  # type: ignore[arg-type]


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
    text = render_brief(Report((*runs, BAD)), width=100)
    assert text.count(MEMORY) == 1
    assert "  activations: their memory (a, b and 3 more)\n" in text
    assert "shrunk to run here: 10 values in 5 runs (-v lists them)\n" in text
    assert text.count("run.gin:9: warning GIN01: nothing reads the macro X") == 1
    for told_above in ("GIN09", "chatter", "not run"):
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
    told = WHOLE[WHOLE.index("t5x/configs") : WHOLE.index("not checked: resolve")]
    assert run_failure(BAD) == f"GIN09: lint of long_name_of_a_config failed\n{told}not run after it: resolve, plan"


def test_a_finding_without_a_line_names_its_binding() -> None:
    given = dataclasses.replace(ERROR, location=None)
    result = dataclasses.replace(BAD, stages=(StageResult(Stage.LINT, Outcome.FAILED, (given,)),))
    assert "\nTRAIN_STEPS: error GIN09: " in run_failure(result)


def test_the_log_is_shown_only_where_no_finding_explains() -> None:
    assert "chatter" not in run_failure(BAD)
    unexplained = dataclasses.replace(BAD.stages[0], findings=(dataclasses.replace(ERROR, code="RUN01"),))
    assert "\n  | chatter" in run_failure(dataclasses.replace(BAD, stages=(unexplained,)))


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
