"""The aot stage: every program of a run through the TPU's compiler, at the config's own sizes, on the slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from t5x_harness.aot import libtpu
from t5x_harness.aot.account import ProgramAccount, account_program
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.description import describe
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict
from t5x_harness.aot.refusals import NotCompiled, findings_of
from t5x_harness.aot.request import AotRun
from t5x_harness.aot.variants import advise
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.slices.slice import Slice, get_slice
from t5x_harness.spec import Finding, RunSpec, Severity, Stage, StageResult

TOO_LARGE = "AOT01"
"""The code for a program that does not fit."""

_CLOSE = 0.03
"""The error of extrapolating, which docs/aot.md measures, as a part of the memory that a program may use."""


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
            not_compiled.append((program.name, refused))
            continue
        report.exercised += 1
        found: list[Finding] = []
        if isinstance(account, ProgramAccount):
            describe(account, run, slice_, dict(spec.settings.prices), report)
            found = list(judge(account, run, slice_))
        elif account.verdict is CompilerVerdict.LOWERED:
            report.fact(program.name, f"can be lowered for {slice_.name}")
            report.not_checked.append(f"whether {program.name} fits {slice_.name}: it was lowered, and not compiled")
        else:
            found = [_out_of_memory(program.name, account, run, slice_, report)]
        if TOO_LARGE not in spec.settings.ignore and any(finding.code == TOO_LARGE for finding in found):
            advice = advise(program, run, spec, compiler)
            found = [dataclasses.replace(each, fix=advice.fix or each.fix, edits=advice.edits) for each in found]
        report.add(found)
    report.add(findings_of(not_compiled))
    if (waited := sum(compiler.waits)) >= 1:
        report.fact("waited", f"{waited:.0f} s for other compilations of this machine: it does one at a time")
    return report.result()


def judge(account: ProgramAccount, run: AotRun, slice_: Slice) -> Iterator[Finding]:
    """Yields findings about a program that compiles, or is extrapolated from layers that do."""
    usable, needed = slice_.usable_hbm_bytes, account.needed_bytes
    shown = f"{'about ' if account.is_extrapolated else ''}{_gib(needed)}"
    if needed > usable:
        yield _too_large(account.program.name, shown, needed - usable, run, slice_)
        return
    if account.is_extrapolated and usable - needed < _CLOSE * usable:
        why = ": so close to the limit, numbers extrapolated from few layers do not decide"
        fix = "compile all layers: --aot=memory"
    elif usable - needed < account.unknown_bytes:
        why = (
            f", without its code, which was not generated: up to {_gib(account.unknown_bytes)}, judging by other "
            f"programs, and {_gib(usable - needed)} are left"
        )
        fix = "compile to the machine's code: --aot=full"
    else:
        return
    message = f"{account.program.name} needs {shown} of the {_gib(usable)} that a program may use on each device of "
    yield _finding("AOT05", Severity.WARNING, f"{message}{slice_.name}{why}", fix, run)


def _out_of_memory(name: str, refused: CompilerResult, run: AotRun, slice_: Slice, report: StageReport) -> Finding:
    """Reports what the compiler says about a program that needs too much memory, perhaps with only some layers."""
    usable, needed = slice_.usable_hbm_bytes, refused.required_bytes
    report.fact(f"{name}: the compiler says", refused.message.partition("\n")[0])
    report.measure("fits", 0.0, of=name)
    report.measure("hbm_usable", usable, "bytes", of=name)
    if needed is None:
        return _too_large(name, "more", 0, run, slice_)
    report.measure("hbm_needed", needed, "bytes", of=name)
    report.measure("hbm_headroom", usable - needed, "bytes", of=name)
    return _too_large(name, f"at least {_gib(needed)}", needed - usable, run, slice_)


def _too_large(name: str, needed: str, over: int, run: AotRun, slice_: Slice) -> Finding:
    missing = f": {_gib(over)} too much" if over > 0 else ""
    limit = f"a program may use {_gib(slice_.usable_hbm_bytes)}{missing}"
    message = f"{name} needs {needed} of each device of {slice_.name}, and {limit}"
    fix = "use more microbatches, more partitions, a smaller batch, or a larger slice"
    return _finding(TOO_LARGE, Severity.ERROR, message, fix, run)


def _finding(code: str, severity: Severity, message: str, fix: str, run: AotRun) -> Finding:
    """Makes a finding at the line of the batch size."""
    knob = run.knobs.get("batch_size")
    return Finding(code, severity, Stage.AOT, message, knob.location if knob is not None else None, fix)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
