"""The aot stage: compiles every program of a run with the TPU's compiler, at the config's own sizes, for the slice.

It reports the memory, largest buffers, arithmetic, collectives and time of each program.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from t5x_harness.aot import libtpu
from t5x_harness.aot.account import ProgramAccount, account_program
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.depth import HIGH, LOW
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict
from t5x_harness.aot.refusals import NotCompiled, findings_of
from t5x_harness.aot.request import TRAIN, AotRun, ProgramSpec
from t5x_harness.aot.speed import BAND_NAME, Span, estimate, price_of, step_time
from t5x_harness.aot.variants import advise, gib
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import Bytes, Count, columns
from t5x_harness.slices.slice import Slice, get_slice
from t5x_harness.spec import Finding, RunSpec, Severity, Stage, StageResult

TOO_LARGE = "AOT01"
"""The code for a program that does not fit."""

_CLOSE = 0.03
"""The error of extrapolation, which docs/aot.md measures, as a share of the memory that a program may use."""


def compile_run(run: AotRun, spec: RunSpec, compiler: Compiler) -> StageResult:
    """Compiles the programs of a planned run, and reports the resources of a device that each takes.

    Args:
      run: the run, as its plan describes it.
      spec: the run's specification, whose ``settings.aot`` says how to compile.
      compiler: the compiler, which starts processes for it.

    Raises:
      WorkerError: a process cannot be started, or exceeds its time limit.
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
            fix, edits = advise(program, run, spec, compiler)
            found = [dataclasses.replace(each, fix=fix or each.fix, edits=edits) for each in found]
        report.add(found)
    report.add(findings_of(not_compiled))
    if (waited := sum(compiler.waits)) >= 1:
        report.fact("waited", f"{waited:.0f} s for other compilations of this machine: it does one at a time")
    return report.result()


def judge(account: ProgramAccount, run: AotRun, slice_: Slice) -> Iterator[Finding]:
    """Yields findings about a program that compiles, or is extrapolated from fewer layers that do."""
    usable, needed = slice_.usable_hbm_bytes, account.needed_bytes
    shown = f"{'about ' if account.is_extrapolated else ''}{gib(needed)}"
    if needed > usable:
        yield _too_large(account.program.name, shown, needed - usable, run, slice_)
        return
    if account.is_extrapolated and usable - needed < _CLOSE * usable:
        why = ": so close to the limit, numbers extrapolated from few layers do not decide"
        fix = "compile all layers: --aot=memory"
    elif usable - needed < account.unknown_bytes:
        why = (
            f", without its code, which was not generated: up to {gib(account.unknown_bytes)}, judging by other "
            f"programs, and {gib(usable - needed)} are left"
        )
        fix = "compile to the machine's code: --aot=full"
    else:
        return
    message = f"{account.program.name} needs {shown} of the {gib(usable)} that a program may use on each device of "
    yield _finding("AOT05", Severity.WARNING, f"{message}{slice_.name}{why}", fix, run)


def _out_of_memory(name: str, refused: CompilerResult, run: AotRun, slice_: Slice, report: StageReport) -> Finding:
    """Reports the compiler's message about a program that needs too much memory, perhaps with only some layers."""
    usable, needed = slice_.usable_hbm_bytes, refused.required_bytes
    report.fact(f"{name}: the compiler says", refused.message.partition("\n")[0])
    report.measure("fits", 0.0, of=name)
    report.measure("hbm_usable", usable, "bytes", of=name)
    if needed is None:
        return _too_large(name, "more", 0, run, slice_)
    report.measure("hbm_needed", needed, "bytes", of=name)
    report.measure("hbm_headroom", usable - needed, "bytes", of=name)
    return _too_large(name, f"at least {gib(needed)}", needed - usable, run, slice_)


def _too_large(name: str, needed: str, over: int, run: AotRun, slice_: Slice) -> Finding:
    missing = f": {gib(over)} too much" if over > 0 else ""
    limit = f"a program may use {gib(slice_.usable_hbm_bytes)}{missing}"
    message = f"{name} needs {needed} of each device of {slice_.name}, and {limit}"
    fix = "use more microbatches, more partitions, a smaller batch, or a larger slice"
    return _finding(TOO_LARGE, Severity.ERROR, message, fix, run)


def _finding(code: str, severity: Severity, message: str, fix: str, run: AotRun) -> Finding:
    """Makes a finding at the line of the batch size."""
    knob = run.knobs.get("batch_size")
    return Finding(code, severity, Stage.AOT, message, knob.location if knob is not None else None, fix)


_BUFFERS = 8
"""The number of largest buffers to show."""

_PADDING = 0.005
"""The least share of the peak for which a padded size is shown."""

_LENGTHS = {"encoder": "length of inputs", "decoder": "length of targets"}


def describe(
    account: ProgramAccount, run: AotRun, slice_: Slice, prices: Mapping[str, float], report: StageReport
) -> None:
    """Adds the facts and measures of a program to a report.

    Args:
      account: the program's account.
      run: the run that it belongs to.
      slice_: the slice where it runs.
      prices: the user's prices, in US dollars for an hour of one chip, by TPU generation.
      report: the report.
    """
    name = account.program.name
    names = names_by_size(run.axes, account.program)
    _compiled(account, run, report)
    _memory(account, slice_, report)
    _buffers(account, report)
    _padded(account, names, report)
    _costs(account, report)
    _matrix_units(account, names, slice_.generation.matrix_unit, report)
    _speed(account, run, slice_, prices, report)
    if account.costs.loops_of_unknown_length:
        times = account.program.longest_loop
        report.fact(f"{name}: decoding", f"counted as {times} tokens; it ends when all examples have")
    elif account.costs.loops_of_most:
        report.fact(f"{name}: decoding", "counted as often as its loop can run; it ends when all examples have")


def names_by_size(axes: Mapping[str, tuple[int, ...]], program: ProgramSpec) -> dict[int, str]:
    """Names sizes by the parameters' axes or the batch's lengths; several with the same size are joined with ``or``."""
    named: dict[int, dict[str, None]] = {}
    sized = [(name, size) for name, sizes in axes.items() for size in sizes]
    for feature, shape in program.shapes.items():
        sized += [(_LENGTHS.get(feature.partition("_")[0], "length"), size) for size in shape[1:2]]
    for name, size in sized:
        named.setdefault(size, {})[name] = None
    return {size: " or ".join(names) for size, names in named.items()}


def _compiled(account: ProgramAccount, run: AotRun, report: StageReport) -> None:
    name = account.program.name
    if account.is_extrapolated:
        whole = ", ".join(f"{binding} = {layers}" for binding, layers in run.stacks.items())
        layers = f"extrapolated from {LOW} and {HIGH} layers to {whole}"
    else:
        layers = f"all layers, {account.why_whole}" if account.why_whole else "all layers"
    taken = f"{account.cpu_seconds:.0f} CPU-seconds" if account.cpu_seconds else "kept from an earlier run"
    report.fact(f"{name}: compiled", f"{layers}, {taken}")
    report.measure("layers_extrapolated", float(account.is_extrapolated), of=name)
    report.measure("compile_cpu_seconds", account.cpu_seconds, "seconds", of=name)
    report.measure("compile_host_memory", account.host_bytes, "bytes", of=name)


def _memory(account: ProgramAccount, slice_: Slice, report: StageReport) -> None:
    name, memory, usable = account.program.name, account.memory, slice_.usable_hbm_bytes
    if account.code_bytes is None:
        code: tuple[object, ...] = (
            "-",
            f"up to {Bytes(account.unknown_bytes)}, not counted: --aot=full generates it",
        )
        report.leave_open("the size of the programs' code: none was generated; --aot=full does")
    else:
        code = (Bytes(account.code_bytes), "")
    share = f"{account.needed_bytes / usable:.1%} of the {Bytes(usable)} that a program may use"
    rows = [
        *((kind.value, Bytes(size), "") for kind, size in memory.kinds.items() if size),
        ("peak", Bytes(memory.peak_bytes), ""),
        ("gaps between temporary values", Bytes(memory.fragmentation_bytes), ""),
        ("code", *code),
        ("all", Bytes(account.needed_bytes), share),
        ("headroom", Bytes(max(0, usable - account.needed_bytes)), ""),
    ]
    report.fact(f"{name}: memory of each device", columns(rows))
    for kind, size in memory.kinds.items():
        report.measure("hbm_at_peak", size, "bytes", of=f"{name}/{kind.value}")
    report.measure("fits", float(account.needed_bytes <= usable), of=name)
    for measured, size in (
        ("hbm_peak", memory.peak_bytes),
        ("hbm_needed", account.needed_bytes),
        ("hbm_usable", usable),
        ("hbm_headroom", usable - account.needed_bytes),
        ("hbm_fragmentation", memory.fragmentation_bytes),
        ("code_up_to", account.unknown_bytes) if account.code_bytes is None else ("code", account.code_bytes),
    ):
        report.measure(measured, size, "bytes", of=name)


def _buffers(account: ProgramAccount, report: StageReport) -> None:
    rows = [
        (
            buffer.module or "-",
            buffer.primitive or buffer.kind.value,
            f"{buffer.dtype}[{','.join(map(str, buffer.shape))}]",
            buffer.count,
            Bytes(buffer.bytes),
            f"{buffer.padding_bytes / buffer.bytes:.0%}" if buffer.padding_bytes else "-",
        )
        for buffer in account.memory.buffers[:_BUFFERS]
    ]
    head = ("module", "made by", "array", "times", "bytes", "padding")
    report.fact(f"{account.program.name}: largest buffers at the peak", columns(rows, head))


def _padded(account: ProgramAccount, names: Mapping[int, str], report: StageReport) -> None:
    """Adds the padding of tiles by the size that is padded."""
    name, peak = account.program.name, account.memory.peak_bytes
    rows: list[tuple[object, ...]] = []
    for each in account.memory.padding:
        if each.bytes >= _PADDING * peak:
            axis = names.get(each.size, "-")
            rows.append((axis, each.size, each.in_tiles, Bytes(each.bytes), f"{each.bytes / peak:.1%}"))
            report.measure("hbm_padding", each.bytes, "bytes", of=f"{name}/{axis}/{each.size}/{each.in_tiles}")
    if rows:
        size = "bytes, about" if account.is_extrapolated else "bytes"
        report.fact(f"{name}: padding", columns(rows, ("axis", "size", "in tiles", size, "of the peak")))


def _matrix_units(account: ProgramAccount, names: Mapping[int, str], unit: int, report: StageReport) -> None:
    """Adds the share of the matrix units' work that is spent on zeros, by the sizes that do not fill them."""
    name, sizes = account.program.name, [each for each in account.costs.product_sizes if each.flops]
    if not sizes:
        return
    whole = sum(each.flops / each.filled(unit) for each in sizes)
    report.measure("matrix_unit_padding", 1 - sum(each.flops for each in sizes) / whole, of=name)
    lost: dict[int, float] = {}
    for each in sizes:
        lost[each.contracted] = lost.get(each.contracted, 0) + each.flops / each.filled(unit) - each.flops
    rows = [
        (names.get(size, "-"), size, f"{part / whole:.1%}")
        for size, part in sorted(lost.items(), key=lambda item: -item[1])
        if part >= _PADDING * whole
    ]
    if rows:
        head = ("axis", "contracted", "of their work on padding, at least")
        report.fact(f"{name}: matrix units of {unit} x {unit}", columns(rows, head))


def _costs(account: ProgramAccount, report: StageReport) -> None:
    name, costs = account.program.name, account.costs
    report.measure("flops_of_a_device", costs.flops, "flop", of=name)
    report.measure("hbm_traffic_of_a_device", costs.hbm_bytes, "bytes", of=name)
    if not costs.collectives:
        report.fact(f"{name}: collectives", "none")
        return
    rows = [(each.kind, each.axis, Count(each.count), Bytes(each.bytes)) for each in costs.collectives]
    report.fact(f"{name}: collectives of each device", columns(rows, ("kind", "axis", "times", "bytes")))
    for each in costs.collectives:
        report.measure("collective_bytes", each.bytes, "bytes", of=f"{name}/{each.kind}/{each.axis}")
        report.measure("collectives", each.count, of=f"{name}/{each.kind}/{each.axis}")


def _speed(
    account: ProgramAccount, run: AotRun, slice_: Slice, prices: Mapping[str, float], report: StageReport
) -> None:
    """Adds the least time of a step, the band of real runs, and the list price of the planned steps."""
    name = account.program.name
    time = step_time(account.costs, slice_.generation)
    steps = run.steps if name == TRAIN else None
    whole = estimate(time, slice_, steps or 1, account.program.tokens, price_of(slice_, prices))
    rows = [_row("seconds of a step", whole.step_seconds), _row("tokens/s", whole.tokens_per_second)]
    report.measure("step_seconds_at_least", whole.step_seconds.bound, "seconds", of=name)
    if steps:
        rows += [_row(f"hours of {steps} steps", whole.hours), _row("chip-hours", whole.chip_hours)]
        report.measure("hours_at_least", whole.hours.bound, "hours", of=name)
        report.measure("chip_hours_at_least", whole.chip_hours.bound, "chip-hours", of=name)
        if whole.usd is not None:
            rows.append(_row("USD", whole.usd))
            report.measure("usd_at_least", whole.usd.bound, "USD", of=name)
    report.fact(f"{name}: time", columns(rows, ("", f"at least, by {time.limit}", "band, best", "band, worst")))
    report.fact(f"{name}: the band", BAND_NAME)
    if steps:
        report.fact(f"{name}: the price", whole.price or "no source is known for the price of this generation")
    if "ici" not in time.parts:
        what = f"what {slice_.generation.name} chips send each other has no sourced figure"
        report.leave_open(f"how long collectives take: {what}")


def _row(title: str, span: Span) -> tuple[str, str, str, str]:
    return title, f"{span.bound:.3g}", f"{span.best:.3g}", f"{span.worst:.3g}"
