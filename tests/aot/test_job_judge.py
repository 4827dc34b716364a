"""What the stages of a run say of a job of Vertex AI: it fits, it exceeds the memory, or nobody knows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from t5x_harness.google.vertex.faults import no_room
from t5x_harness.google.vertex.jobs.judging import Judgement, Verdict
from t5x_harness.runs.job_judge import judgement_of
from t5x_harness.spec import Finding, Measure, Outcome, Severity, Stage, StageResult

GIB = 2**30
LINT = StageResult(Stage.LINT, Outcome.PASSED)
XLA = no_room(20.63, 15.48, "jit_train_step")


def compiled(*findings: Finding, facts: tuple[tuple[str, str], ...] = (), **needs: float) -> StageResult:
    """The stage that compiled programs which need so many GiB."""
    measures = []
    for name, needed in needs.items():
        sizes = {"hbm_needed": needed, "hbm_usable": 16, "hbm_headroom": 16 - needed, "hbm_peak": needed}
        measures += [Measure(size, value * GIB, "bytes", name) for size, value in sizes.items()]
        measures.append(Measure("fits", float(needed <= 16), of=name))
    outcome = Outcome.FAILED if findings else Outcome.PASSED
    left = ("how long collectives take: nobody knows", "the size of its code")
    return StageResult(Stage.AOT, outcome, findings, facts, left, measures=tuple(measures))


def error(code: str, message: str, stage: Stage = Stage.AOT) -> Finding:
    return Finding(code, Severity.ERROR, stage, message)


def test_programs_that_fit_are_said_with_what_is_open() -> None:
    assert judgement_of([LINT, compiled(train=4, predict=8)]) == Judgement(
        Verdict.FITS,
        "train fits, peak 4 GiB, headroom 12 GiB of 16 GiB; predict fits, peak 8 GiB, headroom 8 GiB of 16 GiB",
        ("not judged: the size of its code",),
    )


def test_one_that_exceeds_is_said_in_the_compilers_words_or_in_those_that_it_would_have() -> None:
    said = compiled(train=20.63, facts=(("train: the compiler says", XLA),))
    assert judgement_of([LINT, said]) == Judgement(Verdict.EXCEEDS, XLA)
    assert judgement_of([compiled(train=20)]).text == no_room(20, 16, "jit_train_step")
    assert judgement_of([compiled(error("AOT04", "predict is too large here"), train=20)]).verdict is Verdict.EXCEEDS


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (
            [StageResult(Stage.RESOLVE, Outcome.FAILED, (error("USR01", "no such task", Stage.RESOLVE),)), compiled()],
            "USR01: no such task",
        ),
        (
            [LINT, compiled(error("AOT02", "predict cannot be lowered"), train=4)],
            "AOT02: predict cannot be lowered; train fits, peak 4 GiB, headroom 12 GiB of 16 GiB; "
            "how long collectives take: nobody knows; the size of its code",
        ),
        (
            [
                StageResult(
                    Stage.PLAN,
                    Outcome.FAILED,
                    (error("RUN02", "plan did no work", Stage.PLAN),),
                    silenced=(error("MSH01", "no such mesh", Stage.PLAN),),
                ),
                compiled(),
            ],
            "MSH01: no such mesh",
        ),
        ([LINT, StageResult(Stage.AOT, Outcome.NOT_RUN, not_checked=("libtpu is gone",))], "libtpu is gone"),
    ],
    ids=["does not resolve", "one program is not compiled", "has no mesh", "nothing is compiled"],
)
def test_what_is_not_known_of_all_programs_is_not_known(results: list[StageResult], text: str) -> None:
    assert judgement_of(results) == Judgement(Verdict.UNKNOWN, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gin_file=a.gin"], "the TPU compiler is not installed: python -m pip install 't5x-harness[aot]'"),
        ([], "it has no --gin_file"),
    ],
)
def test_the_program_says_in_one_line_why_it_cannot_judge(arguments: list[str], text: str) -> None:
    code = "import sys; sys.modules['libtpu'] = None; from t5x_harness.runs.job_judge import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, "v3-8", "memory", "t5x.train", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"verdict": "unknown", "text": text, "open": []}
    assert done.stderr == ""
