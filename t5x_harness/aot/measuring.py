"""Compiles one program of a run at the depths that the run asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from t5x_harness.aot.account import ProgramAccount, account_of
from t5x_harness.aot.compiler import CompilerVerdict, Until
from t5x_harness.aot.compiling import CompiledProgram, Compiler
from t5x_harness.aot.depth import HIGH, LOW, depths_of, weights_of
from t5x_harness.aot.moments import highest
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.spec import AotMode, RunSpec


def account_program(
    run: AotRun, program: ProgramSpec, spec: RunSpec, compiler: Compiler
) -> ProgramAccount | CompiledProgram | None:
    """Compiles one program as ``spec.settings.aot`` says.

    Returns:
      Its account; or the compiled program if it needs more memory than a device has; or None if it was only lowered.

    Raises:
      NotCompiled: it cannot be lowered or compiled.
      WorkerError: a process cannot be started, or takes longer than it may.
    """
    if spec.settings.aot is AotMode.LOWER:
        compiler.compile(program, spec, None)
        return None
    until = Until.CODE if spec.settings.aot is AotMode.FULL else Until.MEMORY
    # A loop over equal layers compiles as fast as one layer.
    depths = depths_of(run.stacks) if spec.settings.aot is AotMode.DEPTHS and not run.scanned else []
    if depths and (account := _extrapolated(run, program, spec, compiler, until, depths)) is not None:
        return account
    whole = compiler.compile(program, spec, until)
    if _is_too_large(whole):
        return whole
    return account_of(program, [whole], [], [1.0], _why_whole(run, spec, depths))


def _extrapolated(
    run: AotRun,
    program: ProgramSpec,
    spec: RunSpec,
    compiler: Compiler,
    until: Until,
    depths: Sequence[Mapping[str, int]],
) -> ProgramAccount | CompiledProgram | None:
    """Extrapolates the program from a few layers; None if that is not possible, because layers differ."""

    def compiled_at(depth: int, again: bool = False) -> CompiledProgram:
        few = _with_layers(spec, depths[depth])
        return compiler.compile(program, few, until, f", {HIGH if depth else LOW} layers", again)

    compiled = [compiled_at(depth) for depth in range(len(depths))]
    if (too_large := next(filter(_is_too_large, compiled), None)) is not None:
        return too_large
    weights = weights_of(run.stacks, depths)
    moment = highest([each.live for each in compiled], weights)
    if moment is None or not _is_straight(compiled, weights, run.state_bytes[program.name]):
        return None
    for depth, each in enumerate(compiled):
        memory = compiler.memory_at(each, until, moment)
        if memory is None:
            memory = compiler.memory_at(compiled_at(depth, again=True), until, moment)
        compiled[depth] = dataclasses.replace(each, memory=memory)
    return account_of(program, compiled, depths, weights)


def _why_whole(run: AotRun, spec: RunSpec, depths: Sequence[object]) -> str:
    """Explains why all layers were compiled although the run asked for a few; empty if it asked for all."""
    if spec.settings.aot is not AotMode.DEPTHS:
        return ""
    if run.scanned:
        return "which are one loop"
    if depths:
        return "which are not equal"
    return "which are few" if run.stacks else "as no binding says how many"


def _with_layers(spec: RunSpec, layers: Mapping[str, int]) -> RunSpec:
    return dataclasses.replace(
        spec, bindings=(*spec.bindings, *(f"{binding} = {number}" for binding, number in layers.items()))
    )


def _is_too_large(compiled: CompiledProgram) -> bool:
    return compiled.result is not None and compiled.result.verdict is CompilerVerdict.OUT_OF_MEMORY


def _is_straight(compiled: Sequence[CompiledProgram], weights: Sequence[float], state_bytes: int) -> bool:
    """Returns whether the train state grows with the depths in a straight line: layers of a stack are equal."""
    state = sum(each.lowered.state_bytes * weight for each, weight in zip(compiled, weights, strict=True))
    return round(state) == state_bytes
