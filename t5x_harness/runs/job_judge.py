"""Whether what a job of the emulated Vertex AI runs fits its slice, by the TPU's compiler: a program of its own.

usage: python -m t5x_harness.runs.job_judge SLICE MODE t5x.MODULE [ARGUMENT …]

It sees what the job sees: its folder, its variables, its buckets.  What it finds out is a line of JSON on standard
output; see :mod:`t5x_harness.google.vertex.jobs.judging`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.aot import libtpu
from t5x_harness.aot.description import UNKNOWN_LINKS
from t5x_harness.aot.request import TRAIN
from t5x_harness.aot.stage import COMPILER_SAYS
from t5x_harness.aot.verdicts import TOO_LARGE
from t5x_harness.findings.silencing import codes_to_silence
from t5x_harness.google.vertex.faults import MODULE, no_room
from t5x_harness.google.vertex.jobs.judging import Judgement, Verdict, note_line
from t5x_harness.report.programs import verdicts
from t5x_harness.rulebook.rules import all_codes
from t5x_harness.runs.stages import standins_of
from t5x_harness.spec import (
    STAGE_SECONDS,
    AotMode,
    Outcome,
    RunSettings,
    RunSpec,
    RuntimeChoice,
    Severity,
    Stage,
    StageResult,
)
from t5x_harness.variables import ROOT_VARIABLE, RUNTIME_VARIABLE
from t5x_harness.vertex.program_arguments import NotARun, ProgramArguments

_GIB = 2**30
_NO_WORK = "RUN02"


def main(arguments: Sequence[str]) -> int:
    """Judges, and writes what it finds out."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not for the server

    def write(line: str) -> None:
        print(line, file=out, flush=True)

    slice_, mode, module, *rest = arguments
    try:
        judgement = _judge(slice_, AotMode(mode), module, rest, lambda note: write(note_line(note)))
    except Exception as error:  # the job runs all the same, and its log says so
        judgement = Judgement(Verdict.UNKNOWN, f"{type(error).__name__}: {error}")
    write(judgement.line())
    return 0


def _judge(slice_: str, mode: AotMode, module: str, arguments: Sequence[str], note: Callable[[str], None]) -> Judgement:
    try:
        given = ProgramArguments.parse(module, arguments)
    except NotARun as error:
        return Judgement(Verdict.UNKNOWN, str(error))
    if why := libtpu.why_not(in_process=False):
        return Judgement(Verdict.UNKNOWN, why)
    spec = RunSpec(
        given.gin_files,
        given.bindings,
        given.search_paths,
        given.mode,
        slice_,
        RuntimeChoice(os.environ.get(RUNTIME_VARIABLE) or RuntimeChoice.AUTO),
        cwd=os.getcwd(),
        settings=RunSettings(
            tfds_data_dir=given.tfds_data_dir,
            ignore=(*codes_to_silence((), ("AOT",), all_codes), TOO_LARGE),
            read_seconds=1,
            until=Stage.AOT,
            aot=mode,
        ),
    )
    return judgement_of(_results(spec, note))


def _results(spec: RunSpec, note: Callable[[str], None]) -> list[StageResult]:
    """Returns the stages of a run that uses this process's buckets."""
    from t5x_harness.google.server.own_folders import own_folder
    from t5x_harness.runs.pool import RunContext, RunPool

    said: set[str] = set()

    def tell(event: Mapping[str, Any]) -> None:
        text = str(event.get("note", ""))
        if text and text not in said:
            said.add(text)
            note(f"t5x-harness: {text}")

    root = os.environ.get(ROOT_VARIABLE)
    buckets = str(Path(root, "buckets")) if root else None
    pool = RunPool(timeout=STAGE_SECONDS, in_process=False, at_once=1)
    try:
        with own_folder("t5x-harness-judge-") as folder:
            make = pool.pipeline_factory(spec, folder.path / "run", RunContext(buckets=buckets))
            with make(tell) as pipeline:
                return [pipeline.stage(stage) for stage in pipeline.stages]
    finally:
        pool.close(patient=True)


def judgement_of(results: Sequence[StageResult]) -> Judgement:
    """Returns what the stages of a run say of its programs; the last of them is the one that compiles."""
    *before, compiled = results
    failed = next((result for result in before if result.outcome is Outcome.FAILED), None)
    if failed is not None:
        return Judgement(Verdict.UNKNOWN, "; ".join(_problems(failed)) or f"{failed.stage} failed")
    fits = {measure.of: bool(measure.value) for measure in compiled.measures if measure.name == "fits"}
    if (too_large := next((name for name, holds in fits.items() if not holds), None)) is not None:
        return Judgement(Verdict.EXCEEDS, _refusal(too_large, compiled))
    found, problems, standins = [*verdicts(compiled)], [*_problems(compiled)], standins_of(results)
    if standins:
        found.append(f"with stand-ins for {', '.join(standins)}")
    if problems or not fits:
        return Judgement(Verdict.UNKNOWN, "; ".join([*problems, *found, *compiled.not_checked]))
    return Judgement(Verdict.FITS, "; ".join(found), tuple(_open(compiled)))


def _open(compiled: StageResult) -> Iterator[str]:
    """Yields what was not judged of memory, and where the compiler is not sure."""
    yield from (f"not judged: {each}" for each in compiled.not_checked if not each.startswith(UNKNOWN_LINKS))
    yield from (f"{finding.code}: {finding.message}" for finding in compiled.findings)


def _problems(result: StageResult) -> Iterator[str]:
    """Yields what is wrong in a stage; where it did no work, that is said by what was left aside."""
    found = [*result.errors, *(each for each in result.silenced if each.severity is Severity.ERROR)]
    for finding in [each for each in found if each.code != _NO_WORK] or found:
        yield f"{finding.code}: {finding.message}"


def _refusal(name: str, compiled: StageResult) -> str:
    """Returns what XLA says of a program that exceeds the memory, or would say of one whose size is extrapolated."""
    said = dict(compiled.facts).get(COMPILER_SAYS.format(name))
    if said is not None:
        return said
    numbers = {measure.name: measure.value for measure in compiled.measures if measure.of == name}
    return no_room(
        numbers["hbm_needed"] / _GIB, numbers["hbm_usable"] / _GIB, MODULE if name == TRAIN else f"jit_{name}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
