"""One program of a run, compiled at the depths that the run asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from t5x_harness.aot.account import Account, account_of
from t5x_harness.aot.compiler import Until, Verdict
from t5x_harness.aot.compiling import Compiled, Compiler
from t5x_harness.aot.depth import depths_of, weights_of
from t5x_harness.aot.moments import highest
from t5x_harness.aot.request import AotRun, ProgramSpec
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
        compiled = [_few(program, spec, compiler, until, layers, again=False) for layers in depths]
        weights = weights_of(run.stacks, depths)
        if (too_large := next(filter(_is_too_large, compiled), None)) is not None:
            return too_large
        moment = highest([each.live for each in compiled], weights)
        if moment is not None and _is_straight(compiled, weights, run.state_bytes[program.name]):
            for index, layers in enumerate(depths):
                memory = compiler.memory_at(compiled[index], until, moment)
                if memory is None:
                    compiled[index] = _few(program, spec, compiler, until, layers, again=True)
                    memory = compiler.memory_at(compiled[index], until, moment)
                compiled[index] = dataclasses.replace(compiled[index], memory=memory)
            return account_of(program, compiled, depths, weights)
    whole = compiler.compile(program, spec, until)
    if _is_too_large(whole):
        return whole
    return account_of(program, [whole], [], [1.0], _why_whole(run, spec, depths))


def _why_whole(run: AotRun, spec: RunSpec, depths: Sequence[object]) -> str:
    """Returns why all layers were compiled though a few were to do; empty where all were asked for."""
    if spec.aot is not AotMode.DEPTHS:
        return ""
    if run.scanned:
        return "which are one loop"
    if depths:
        return "which are not equal"
    return "which are few" if run.stacks else "as no binding says how many"


def _few(
    program: ProgramSpec, spec: RunSpec, compiler: Compiler, until: Until, layers: Mapping[str, int], again: bool
) -> Compiled:
    shown = f", {max(layers.values())} layers"
    return compiler.compile(program, _with_layers(spec, layers), until, shown, again)


def _with_layers(spec: RunSpec, layers: Mapping[str, int]) -> RunSpec:
    return dataclasses.replace(
        spec, bindings=(*spec.bindings, *(f"{binding} = {number}" for binding, number in layers.items()))
    )


def _is_too_large(compiled: Compiled) -> bool:
    return compiled.result is not None and compiled.result.verdict is Verdict.OUT_OF_MEMORY


def _is_straight(compiled: Sequence[Compiled], weights: Sequence[float], state_bytes: int) -> bool:
    """Returns whether the state at the full depth is what the depths say: the layers of each stack are equal."""
    drawn = sum(each.lowered.state_bytes * weight for each, weight in zip(compiled, weights, strict=True))
    return round(drawn) == state_bytes
