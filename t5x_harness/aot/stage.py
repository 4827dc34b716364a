"""The aot stage: every program of a run through the TPU's compiler, at the config's own sizes, on the slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_harness.aot import libtpu
from t5x_harness.aot.account import Account, account_of
from t5x_harness.aot.compiler import Until, Verdict
from t5x_harness.aot.compiling import Compiled, Compiler, NotCompiled
from t5x_harness.aot.depth import depths_of, weights_of
from t5x_harness.aot.description import describe
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.aot.verdicts import judge, out_of_memory
from t5x_harness.resolve.stage_report import StageReport
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import AotMode, RunSpec, Stage, StageResult


def compile_run(run: AotRun, spec: RunSpec, compiler: Compiler) -> StageResult:
    """Compiles the programs of a planned run and says what each takes of a device.

    Args:
      run: as the plan describes it.
      spec: the run; its ``aot`` says how.
      compiler: starts processes for it.

    Raises:
      WorkerError: a process cannot be started, or takes longer than it may.
    """
    report = StageReport(Stage.AOT, spec.ignore, spec.cwd)
    report.not_checked += [*run.not_checked, *libtpu.untried()]
    slice_ = get_slice(spec.slice)
    for program in run.programs:
        try:
            account = account_program(run, program, spec, compiler)
        except NotCompiled as refused:
            report.add([refused.finding])
            continue
        report.exercised += 1
        if isinstance(account, Account):
            describe(account, run, slice_, dict(spec.prices), report)
            report.add(judge(account, run, slice_))
        elif account is not None:
            report.measure("fits", 0.0, of=program.name)
            report.add([out_of_memory(program, account, run, slice_)])
        else:
            report.fact(program.name, f"can be lowered for {slice_.name}")
            report.not_checked.append(f"whether {program.name} fits {slice_.name}: it was lowered, and not compiled")
    if (waited := sum(compiler.waits)) >= 1:
        report.fact("waited", f"{waited:.0f} s for other compilations of this machine: it does one at a time")
    return report.result()


def account_program(run: AotRun, program: ProgramSpec, spec: RunSpec, compiler: Compiler) -> Account | Compiled | None:
    """Compiles one program as ``spec.aot`` says.

    Returns:
      Its account; what was compiled where that needs more memory than there is; None where it was only lowered.

    Raises:
      NotCompiled: it cannot be lowered or compiled.
      WorkerError: a process cannot be started, or takes longer than it may.
    """
    if spec.aot is AotMode.LOWER:
        compiler.compile(program, spec, None)
        return None
    until = Until.CODE if spec.aot is AotMode.FULL else Until.MEMORY
    # A loop over equal layers is compiled as fast as one of them.
    depths = depths_of(run.stacks) if spec.aot is AotMode.DEPTHS and not run.scanned else []
    if depths:
        compiled = [
            compiler.compile(program, _with_layers(spec, layers), until, f", {max(layers.values())} layers")
            for layers in depths
        ]
        weights = weights_of(run.stacks, depths)
        failed = next((each for each in compiled if each.result and each.result.verdict is not Verdict.COMPILED), None)
        if failed is not None:
            return _judged(failed, program)
        if _is_straight(compiled, weights, run.state_bytes[program.name]):
            return account_of(program, compiled, depths, weights)
    whole = compiler.compile(program, spec, until)
    if whole.result is not None and whole.result.verdict is not Verdict.COMPILED:
        return _judged(whole, program)
    return account_of(program, [whole], [], [1.0])


def _with_layers(spec: RunSpec, layers: dict[str, int]) -> RunSpec:
    return dataclasses.replace(
        spec, bindings=(*spec.bindings, *(f"{binding} = {number}" for binding, number in layers.items()))
    )


def _judged(compiled: Compiled, program: ProgramSpec) -> Compiled:
    from t5x_harness.aot.verdicts import compiler_failed

    assert compiled.result is not None
    if compiled.result.verdict is Verdict.FAILED:
        raise NotCompiled(compiler_failed(program, compiled.result.message))
    return compiled


def _is_straight(compiled: Sequence[Compiled], weights: Sequence[float], state_bytes: int) -> bool:
    """Returns whether the state at the full depth is what the depths say: the layers of each stack are equal."""
    drawn = sum(each.lowered.state_bytes * weight for each, weight in zip(compiled, weights, strict=True))
    return round(drawn) == state_bytes
