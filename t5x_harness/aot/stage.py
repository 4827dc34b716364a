"""The aot stage: every program of a run through the TPU's compiler, at the config's own sizes, on the slice."""

from __future__ import annotations

import dataclasses

from t5x_harness.aot import libtpu
from t5x_harness.aot.account import ProgramAccount
from t5x_harness.aot.advice import advise
from t5x_harness.aot.compiling import CompiledProgram, Compiler
from t5x_harness.aot.description import describe
from t5x_harness.aot.measuring import account_program
from t5x_harness.aot.refusals import NotCompiled, findings_of
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.aot.verdicts import TOO_LARGE, judge, out_of_memory, required_bytes
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.slices.slice import Slice, get_slice
from t5x_harness.spec import RunSpec, Stage, StageResult

COMPILER_SAYS = "{}: the compiler says"
"""The name of the fact with the compiler's message about a program that it refuses."""


def compile_run(run: AotRun, spec: RunSpec, compiler: Compiler) -> StageResult:
    """Compiles the programs of a planned run, and reports what each takes of a device.

    Args:
      run: the run, as its plan describes it.
      spec: the run's specification, whose ``settings.aot`` says how to compile.
      compiler: starts processes for it.

    Raises:
      WorkerError: a process cannot be started, or takes longer than it may.
    """
    report = StageReport(Stage.AOT, spec.settings.ignore, spec.cwd)
    report.not_checked += [*run.not_checked, *libtpu.untried()]
    slice_ = get_slice(spec.slice)
    not_compiled = []
    for program in run.programs:
        try:
            account = account_program(run, program, spec, compiler)
        except NotCompiled as refused:
            not_compiled.append(refused)
            continue
        report.exercised += 1
        if isinstance(account, ProgramAccount):
            describe(account, run, slice_, dict(spec.settings.prices), report)
            found = list(judge(account, run, slice_))
        elif account is not None:
            _describe_refusal(account, program, slice_, report)
            found = [out_of_memory(program, account, run, slice_)]
        else:
            found = []
            report.fact(program.name, f"can be lowered for {slice_.name}")
            report.not_checked.append(f"whether {program.name} fits {slice_.name}: it was lowered, and not compiled")
        if TOO_LARGE not in spec.settings.ignore and any(finding.code == TOO_LARGE for finding in found):
            advice = advise(program, run, spec, compiler)
            found = [dataclasses.replace(each, fix=advice.fix or each.fix, edits=advice.edits) for each in found]
        report.add(found)
    report.add(findings_of(not_compiled))
    if (waited := sum(compiler.waits)) >= 1:
        report.fact("waited", f"{waited:.0f} s for other compilations of this machine: it does one at a time")
    return report.result()


def _describe_refusal(refused: CompiledProgram, program: ProgramSpec, slice_: Slice, report: StageReport) -> None:
    """Adds what the compiler says about a program that needs more memory than a device has."""
    assert refused.result is not None
    usable, needed = slice_.usable_hbm_bytes, required_bytes(refused)
    report.fact(COMPILER_SAYS.format(program.name), refused.result.message.partition("\n")[0])
    report.measure("fits", 0.0, of=program.name)
    report.measure("hbm_usable", usable, "bytes", of=program.name)
    if needed is not None:
        report.measure("hbm_needed", needed, "bytes", of=program.name)
        report.measure("hbm_headroom", usable - needed, "bytes", of=program.name)
