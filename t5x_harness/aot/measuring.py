"""One program of a run, compiled at the depths that the run asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t5x_harness.aot.account import Account, account_of
from t5x_harness.aot.compiler import Until, Verdict
from t5x_harness.aot.compiling import Compiled, Compiler, NotCompiled
from t5x_harness.aot.depth import depths_of, weights_of
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.aot.verdicts import compiler_failed
from t5x_harness.spec import AotMode, RunSpec


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
    assert compiled.result is not None
    if compiled.result.verdict is Verdict.FAILED:
        raise NotCompiled(compiler_failed(program, compiled.result.message))
    return compiled


def _is_straight(compiled: Sequence[Compiled], weights: Sequence[float], state_bytes: int) -> bool:
    """Returns whether the state at the full depth is what the depths say: the layers of each stack are equal."""
    drawn = sum(each.lowered.state_bytes * weight for each, weight in zip(compiled, weights, strict=True))
    return round(drawn) == state_bytes
