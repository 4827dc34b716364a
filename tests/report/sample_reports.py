"""Runs in the form that writers get: one that passed, one that lint stopped."""

import dataclasses
from collections.abc import Callable

from t5x_harness.findings.text import columns
from t5x_harness.report import github, junit, sarif, terminal
from t5x_harness.report import json as json_report
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import render_brief
from t5x_harness.rulebook.pages import rule_descriptors
from t5x_harness.spec import (
    Assignment,
    BoundValue,
    Change,
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

LOCATION = Location("t5x/configs/runs/pretrain.gin", 12, (Location("run.gin", 3), Location("base.gin", 7)))
ERROR = Finding(
    "GIN09",
    Severity.ERROR,
    Stage.LINT,
    "TRAIN_STEPS = 1.0 is a float",
    LOCATION,
    "write TRAIN_STEPS = 1",
    "TRAIN_STEPS",
    (Edit("run.gin", 4, 4, "TRAIN_STEPS = 1\n"),),
)
WARNING = Finding("GIN01", Severity.WARNING, Stage.LINT, "nothing reads the macro X", Location("run.gin", 9))
NOTE = Finding("GIN06", Severity.NOTE, Stage.LINT, "nothing opens the scope y", Location("--gin bindings", 2))
TABLE = columns([("embed", "-", 8), ("mlp", "model", 2)], ("axis", "mesh", "size"))


def passed(stage: Stage, seconds: float, **fields: object) -> StageResult:
    """Returns the result of a stage that passed."""
    return StageResult(stage, Outcome.PASSED, seconds=seconds, exercised=1, **fields)  # type: ignore[arg-type]


def report_of(
    *findings: Finding, stage: Stage = Stage.LINT, outcome: Outcome = Outcome.FAILED, cwd: str = ".", **fields: object
) -> Report:
    """Returns the result of a run of ``run.gin`` with one stage."""
    result = StageResult(stage, outcome, findings, **fields)  # type: ignore[arg-type]
    return Report((RunResult(RunSpec(("run.gin",), cwd=cwd), (result,)),))


GOOD = RunResult(
    RunSpec(("configs/pretrain.gin",), mode=Mode.TRAIN),
    (
        passed(Stage.LINT, 0.1),
        passed(Stage.RESOLVE, 2.0, not_checked=("access to gs://b",)),
        passed(
            Stage.PLAN,
            1.0,
            facts=(("mesh", "data 8 x model 1"), ("axes", str(TABLE))),
            measures=(
                Measure("mesh", 8, "devices", "data"),
                Measure("mesh", 1, "devices", "model"),
                Measure("steps_to_train", 2000, "steps"),
                Measure("learning_rate", float("nan"), step=0),
                Measure("parameters", 60506624, "elements"),
            ),
            tables=(FactTable("axes", TABLE.header, TABLE.rows),),
            changes=(Change("network.T5Config.emb_dim", "768", "16", Reason.SHRINK),),
        ),
        passed(Stage.TRAIN, 65.0),
        passed(Stage.EVAL, 3.0),
        passed(Stage.INFER, 3.0),
    ),
    steps=4,
    metrics={"train/loss": {2: 1.5, 4: float("nan")}},
    checkpoints=(Checkpoint(4, "m/checkpoint_4", 9),),
    predictions=({"inputs": ["a"]},),
    standins=("a vocabulary of 32000 pieces for gs://b/v.model", "a checkpoint at step 10"),
    bindings=(
        BoundValue("X", None, Assignment("7", Location("--gin bindings", 1)), (Assignment("6", LOCATION),)),
        BoundValue("a/utils.Y.z", "t5x.utils.Y", Assignment("%X", LOCATION)),
    ),
)
BAD = RunResult(
    RunSpec(
        ("a/long_name_of_a_config.gin",),
        mode=Mode.EVAL,
        slice="v4-16",
        settings=RunSettings(until=Stage.PLAN, standins=StandInPolicy.ALL),
    ),
    (
        StageResult(Stage.LINT, Outcome.FAILED, findings=(ERROR, WARNING, NOTE), seconds=0.2, log_tail="chatter"),
        StageResult(Stage.RESOLVE, Outcome.NOT_RUN, not_checked=("resolve: not run, because lint failed",)),
        StageResult(Stage.PLAN, Outcome.NOT_RUN, not_checked=("plan: not run, because lint failed",)),
    ),
    log="runs/log.txt",
)


def report_saying(text: str) -> Report:
    """Returns a report that has a text in every place that can have text from a user's file."""
    place = Location(text, 3, (Location(text, 1),))
    finding = Finding(
        "GIN01", Severity.ERROR, Stage.LINT, f"{text} is {text}", place, text, text, (Edit(text, 1, 1, f"{text}\n"),)
    )
    warning = dataclasses.replace(finding, severity=Severity.WARNING, location=Location(f"folder/{text}", 1))
    failed = StageResult(Stage.LINT, Outcome.FAILED, (finding,), not_checked=(text,), log_tail=f"{text}\n{text}")
    crashed = StageResult(Stage.TRAIN, Outcome.FAILED, log_tail=f"{text}\n{text}")
    below = dataclasses.replace(failed, findings=(dataclasses.replace(finding, location=warning.location),))
    good = passed(
        Stage.PLAN,
        1.0,
        findings=(warning,),
        facts=(("mesh", text), ("a table", f"{text}\n{text}")),
        tables=(FactTable("arrays", ("name",), ((text,),)),),
        changes=(Change(text, text, text, Reason.SHRINK), Change(text, text, text, Reason.GIVEN)),
        measures=(Measure("loss", 1.0, of=text, step=1),),
        not_checked=(text,),
    )
    spec = RunSpec((text,), (text,), mode=Mode.TRAIN, runtime="embedded")
    bound = BoundValue(text, text, Assignment(text, place), (Assignment(text, place),))
    results = (
        RunResult(spec, (failed, good), standins=(text, text), bindings=(bound,), log=text, model_dir=text),
        RunResult(dataclasses.replace(spec, slice="v4-8"), (crashed, below), log=text),
        RunResult(
            dataclasses.replace(spec, gin_files=(f"folder/{text}.gin",)),
            (good, passed(Stage.EVAL, 1.0, measures=(Measure("accuracy", 1.0, of=text),))),
        ),
    )
    return Report(results)


WRITERS: dict[str, Callable[[Report], str]] = {
    "text": terminal.render,
    "text with everything": lambda report: terminal.render(report, facts=True, notes=True, width=60),
    "quietly": terminal.render_quietly,
    "in brief": lambda report: render_brief(report, width=80),
    "failures": lambda report: "\n".join(map(terminal.run_failure, report.results)),
    "failures in a line": lambda report: "\n".join(
        terminal.failure_in_a_line(stage, None) for result in report.results for stage in result.stages
    ),
    "github": github.render,
    "summary": github.markdown,
    "json": json_report.render,
    "sarif": lambda report: sarif.render(report, rule_descriptors),
    "junit": junit.render,
}
"""Every form of a report."""
