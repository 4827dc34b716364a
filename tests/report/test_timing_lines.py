"""The report shows where the time went, if that was measured, and leaves nothing out."""

from t5x_harness.report.report import Report
from t5x_harness.report.terminal import render, render_brief, render_quietly
from t5x_harness.spec import Imports, Outcome, RunResult, RunSpec, Stage, StageResult

LINT = StageResult(Stage.LINT, Outcome.PASSED, exercised=3, seconds=0.2)
PARTS = {"tracing": 2.0, "input pipelines of my_tasks.py": 2.5, "waiting for a core": 0.4, "writing metrics": 0.06}
TRAIN = StageResult(
    Stage.TRAIN, Outcome.PASSED, exercised=4, seconds=5.0, parts=PARTS, counts={"compilations": 2, "cache hits": 11}
)
RUN = RunResult(RunSpec(("train.gin",)), (LINT, TRAIN), seconds=16.0)
IMPORTS = Imports(9.0, {"tensorflow": 4.0, "jax": 1.5, "clu": 0.1, "etils": 0.1, "other": 3.3})

ALONE = """\
where the time went:
  train  20 s
    start of Python    0.5 s
    imports            9.0 s  tensorflow 4.0, other 3.3, jax 1.5, and less 0.2
    lint               0.2 s
    train              5.0 s  input pipelines of my_tasks.py 2.5, tracing 2.0, waiting for a core 0.4, and less 0.1; 2
                               programs compiled, 11 from the cache
    the rest           5.3 s  starting and ending processes, this report
"""
TWO = """\
where the time went:
  a/train.gin  16 s
    lint               0.2 s
    train              5.0 s  input pipelines of my_tasks.py 2.5, tracing 2.0, waiting for a core 0.4, and less 0.1; 2
                               programs compiled, 11 from the cache
    the rest            11 s  starting and ending processes, this report
  b/train.gin  16 s
"""


def test_the_parts_of_one_run_add_up_to_the_call() -> None:
    report = Report((RUN,), seconds=19.5, start_seconds=0.5, imports=IMPORTS)
    for text in (render(report, width=120), render_brief(report, width=120), render_quietly(report, width=120)):
        assert ALONE in text


def test_those_of_several_runs_add_up_to_what_was_waited_for_each() -> None:
    runs = tuple(RunResult(RunSpec((f"{folder}/train.gin",)), RUN.stages, seconds=16.0) for folder in "ab")
    assert TWO in render(Report(runs, seconds=30.0, imports=IMPORTS), width=120)


def test_nothing_is_shown_that_was_not_measured() -> None:
    unmeasured = RunResult(RUN.spec, (LINT,), seconds=16.0)
    assert "where the time went" not in render(Report((unmeasured,), imports=IMPORTS), width=120)
