"""The account of a program at the config's own depth: taken from the compiler, or extrapolated from a few layers."""

import dataclasses
from collections.abc import Sequence

from t5x_harness.aot.compiling import CompiledProgram, Compiler
from t5x_harness.aot.costs import DeviceCosts
from t5x_harness.aot.depth import HIGH, LOW, at_full_depth, depths_of, highest
from t5x_harness.aot.hlo import T, added_up
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict, Until
from t5x_harness.aot.memory import DeviceMemory
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.spec import AotMode, RunSpec

CODE_OF_A_PRODUCT = 2**20
"""Bytes of code per instruction with products: a bound for programs whose code was not generated.

Code also takes a device's memory, and its size cannot be computed beforehand: for 22 programs, formulas of the numbers
and sizes of instructions were off by 36% and more, and by 63% for a program that they were not fitted to. So there is
a bound: code grows with the products. In 29 programs it had 37,000 to 770,000 bytes for each, more for larger
arrays: T5 1.1 from small to XXL with 1 to 12 layers, scanned layers, a tiny model; train, evaluation, predict and
score; v3 to v6e.
"""


@dataclasses.dataclass(frozen=True)
class ProgramAccount:
    """The resources of one device that one run of a program takes.

    Attributes:
      program: the program.
      why_whole: why all layers were compiled although the run asked for a few; empty otherwise.
      memory: the memory, in bytes.
      costs: the costs of one run.
      code_bytes: the size of the program's code; None if no code was generated.
      cpu_seconds: the CPU seconds that lowering and compiling took; 0 if earlier runs had compiled it.
      host_bytes: the most memory of this machine that a compiling process had.
      is_extrapolated: whether its numbers are extrapolated from fewer layers.
    """

    program: ProgramSpec
    why_whole: str
    memory: DeviceMemory
    costs: DeviceCosts
    code_bytes: int | None
    cpu_seconds: float
    host_bytes: int
    is_extrapolated: bool

    @property
    def needed_bytes(self) -> int:
        """The bytes that have to fit a device: those that the compiler reserves, and the code if its size is known."""
        return self.memory.reserved_bytes + (self.code_bytes or 0)

    @property
    def unknown_bytes(self) -> int:
        """The most bytes that the code may take in addition to ``needed_bytes``; 0 if the code's size is known."""
        return self.costs.products * CODE_OF_A_PRODUCT if self.code_bytes is None else 0


def account_program(
    run: AotRun, program: ProgramSpec, spec: RunSpec, compiler: Compiler
) -> ProgramAccount | CompilerResult:
    """Compiles one program at the depths that ``spec.settings.aot`` asks for.

    Returns:
      Its account; or the compiler's result if it needs more memory than a device has, or was only lowered.

    Raises:
      NotCompiled: it cannot be lowered or compiled.
      WorkerError: a process cannot be started, or exceeds its time limit.
    """
    mode = spec.settings.aot
    if mode is AotMode.LOWER:
        return compiler.compile(program, spec, None).result
    why = ""
    if mode is AotMode.DEPTHS:
        if run.scanned:
            why = "which are one loop"  # compiles as fast as one layer
        elif not depths_of(run.stacks)[0]:
            why = "which are few" if run.stacks else "as no binding says how many"
        elif (account := _extrapolated(run, program, spec, compiler)) is not None:
            return account
        else:
            why = "which are not equal"
    whole = compiler.compile(program, spec, Until.CODE if mode is AotMode.FULL else Until.MEMORY)
    if whole.result.verdict is CompilerVerdict.OUT_OF_MEMORY:
        return whole.result
    return account_of(program, [whole], [1.0], why)


def _extrapolated(
    run: AotRun, program: ProgramSpec, spec: RunSpec, compiler: Compiler
) -> ProgramAccount | CompilerResult | None:
    """Extrapolates the program from a few layers; None if that is not possible, because layers differ."""
    depths, weights = depths_of(run.stacks)

    def compiled_at(depth: int, again: bool = False) -> CompiledProgram:
        layers = (f"{binding} = {number}" for binding, number in depths[depth].items())
        few = dataclasses.replace(spec, bindings=(*spec.bindings, *layers))
        return compiler.compile(program, few, Until.MEMORY, f", {HIGH if depth else LOW} layers", again)

    compiled = [compiled_at(depth) for depth in range(len(depths))]
    for each in compiled:
        if each.result.verdict is CompilerVerdict.OUT_OF_MEMORY:
            return each.result
    moment = highest([each.live for each in compiled], weights)
    state = sum(each.lowered.state_bytes * weight for each, weight in zip(compiled, weights, strict=True))
    if moment is None or round(state) != run.state_bytes[program.name]:  # not linear in the depth
        return None
    for depth, each in enumerate(compiled):
        memory = compiler.memory_at(each, moment)
        if memory is None:
            memory = compiler.memory_at(compiled_at(depth, again=True), moment)
        compiled[depth] = dataclasses.replace(each, memory=memory)
    return account_of(program, compiled, weights)


def account_of(
    program: ProgramSpec, compiled: Sequence[CompiledProgram], weights: Sequence[float], why_whole: str = ""
) -> ProgramAccount:
    """Makes the account of a program.

    Args:
      program: the program.
      compiled: the program with all layers, or at each of several depths; none exceeds the device's memory.
      weights: the weights of the depths; see :mod:`t5x_harness.aot.depth`.
      why_whole: why all layers were compiled although the run asked for a few.
    """
    results = [each.result for each in compiled]
    code = [each.code_bytes for each in results if each.code_bytes is not None]
    return ProgramAccount(
        program,
        why_whole,
        _memory([each.memory for each in compiled if each.memory is not None], weights),
        _costs([each.costs for each in compiled if each.costs is not None], weights),
        at_full_depth(code, weights) if len(code) == len(compiled) else None,
        sum(each.result.cpu_seconds for each in compiled if not each.is_kept),
        max(each.host_bytes for each in results),
        is_extrapolated=len(compiled) > 1,
    )


def _memory(parts: Sequence[DeviceMemory], weights: Sequence[float]) -> DeviceMemory:
    peak = at_full_depth([part.peak_bytes for part in parts], weights)
    return DeviceMemory(
        peak_bytes=peak,
        # Gaps are accidents of packing, and do not grow with more layers.
        reserved_bytes=peak + min(part.fragmentation_bytes for part in parts),
        kinds={kind: at_full_depth([part.kinds.get(kind, 0) for part in parts], weights) for kind in parts[0].kinds},
        buffers=_joined([part.buffers for part in parts], weights),
        padding=_joined([part.padding for part in parts], weights),
    )


def _costs(parts: Sequence[DeviceCosts], weights: Sequence[float]) -> DeviceCosts:
    return DeviceCosts(
        flops=at_full_depth([part.flops for part in parts], weights),
        product_flops=at_full_depth([part.product_flops for part in parts], weights),
        hbm_bytes=at_full_depth([part.hbm_bytes for part in parts], weights),
        collectives=_joined([part.collectives for part in parts], weights),
        loops_of_most=tuple(dict.fromkeys(name for part in parts for name in part.loops_of_most)),
        loops_of_unknown_length=tuple(dict.fromkeys(name for part in parts for name in part.loops_of_unknown_length)),
        products=at_full_depth([part.products for part in parts], weights),
        product_sizes=_joined([part.product_sizes for part in parts], weights),
    )


def _joined(parts: Sequence[Sequence[T]], weights: Sequence[float]) -> tuple[T, ...]:
    return added_up((each, weight) for part, weight in zip(parts, weights, strict=True) for each in part)
