"""The facts that the aot stage reports about a program: memory, largest buffers, arithmetic, collectives, time."""

from __future__ import annotations

from collections.abc import Mapping

from t5x_harness.aot.account import ProgramAccount
from t5x_harness.aot.axes import names_by_size
from t5x_harness.aot.depth import HIGH, LOW
from t5x_harness.aot.memory import Buffer
from t5x_harness.aot.prices import price_of
from t5x_harness.aot.request import TRAIN, AotRun
from t5x_harness.aot.speed import BAND_NAME, Span, estimate, step_time
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.tables import Bytes, Count, columns
from t5x_harness.slices.slice import Slice

UNKNOWN_LINKS = "how long collectives take"
"""The beginning of what is not checked if no source says how fast chips exchange data."""

_BUFFERS = 8
"""The number of largest buffers to show."""

_PADDING = 0.005
"""The part of the peak from which on a padded size is shown."""


def describe(
    account: ProgramAccount, run: AotRun, slice_: Slice, prices: Mapping[str, float], report: StageReport
) -> None:
    """Adds the facts and measures of a program to a report.

    Args:
      account: the program's account.
      run: the run that it belongs to.
      slice_: where it runs.
      prices: the user's prices, in US dollars for an hour of one chip, by TPU generation.
      report: the report.
    """
    name = account.program.name
    _compiled(account, run, report)
    _memory(account, slice_, report)
    report.fact(f"{name}: largest buffers at the peak", _buffers(account))
    _padded(account, run, report)
    _costs(account, report)
    _matrix_units(account, run, slice_, report)
    _speed(account, run, slice_, prices, report)
    if account.costs.loops_of_unknown_length:
        times = account.program.longest_loop
        report.fact(f"{name}: decoding", f"counted as {times} tokens; it ends when all examples have")
    elif account.costs.loops_of_most:
        report.fact(f"{name}: decoding", "counted as often as its loop can run; it ends when all examples have")


def depth_in_words(account: ProgramAccount, run: AotRun) -> str:
    """Names what was compiled: ``all layers``, or the depths that its numbers are extrapolated from."""
    if not account.is_extrapolated:
        return f"all layers, {account.why_whole}" if account.why_whole else "all layers"
    whole = ", ".join(f"{stack.binding} = {stack.layers}" for stack in run.stacks)
    return f"extrapolated from {LOW} and {HIGH} layers to {whole}"


def _compiled(account: ProgramAccount, run: AotRun, report: StageReport) -> None:
    name = account.program.name
    taken = f"{account.cpu_seconds:.0f} CPU-seconds" if account.cpu_seconds else "kept from an earlier run"
    report.fact(f"{name}: compiled", f"{depth_in_words(account, run)}, {taken}")
    report.measure("layers_extrapolated", float(account.is_extrapolated), of=name)
    report.measure("compile_cpu_seconds", account.cpu_seconds, "seconds", of=name)
    report.measure("compile_host_memory", account.host_bytes, "bytes", of=name)


def _memory(account: ProgramAccount, slice_: Slice, report: StageReport) -> None:
    name, memory, usable = account.program.name, account.memory, slice_.usable_hbm_bytes
    rows: list[tuple[object, ...]] = [(kind.value, Bytes(size), "") for kind, size in memory.kinds.items() if size]
    rows.append(("peak", Bytes(memory.peak_bytes), ""))
    rows.append(("gaps between temporary values", Bytes(memory.fragmentation_bytes), ""))
    if account.code_bytes is not None:
        rows.append(("code", Bytes(account.code_bytes), ""))
    else:
        rows.append(("code", "-", f"up to {Bytes(account.unknown_bytes)}, not counted: --aot=full generates it"))
    share = f"{account.needed_bytes / usable:.1%} of the {Bytes(usable)} that a program may use"
    rows.append(("all", Bytes(account.needed_bytes), share))
    rows.append(("headroom", Bytes(max(0, usable - account.needed_bytes)), ""))
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
    ):
        report.measure(measured, size, "bytes", of=name)
    if account.code_bytes is None:
        report.measure("code_up_to", account.unknown_bytes, "bytes", of=name)
        _leave_open("the size of the programs' code: none was generated; --aot=full does", report)
    else:
        report.measure("code", account.code_bytes, "bytes", of=name)


def _buffers(account: ProgramAccount) -> str:
    rows = [
        (
            buffer.module or "-",
            buffer.primitive or buffer.kind.value,
            f"{buffer.dtype}[{','.join(map(str, buffer.shape))}]",
            buffer.count,
            Bytes(buffer.bytes),
            _padding(buffer),
        )
        for buffer in account.memory.buffers[:_BUFFERS]
    ]
    return columns(rows, ("module", "made by", "array", "times", "bytes", "padding"))


def _padded(account: ProgramAccount, run: AotRun, report: StageReport) -> None:
    """Adds the padding of tiles by the size that is padded."""
    name, memory = account.program.name, account.memory
    least = _PADDING * memory.peak_bytes
    names = names_by_size(run.axes, account.program)
    rows: list[tuple[object, ...]] = []
    for each in memory.padding:
        if each.bytes >= least:
            axis = names.get(each.size, "-")
            rows.append((axis, each.size, each.in_tiles, Bytes(each.bytes), f"{each.bytes / memory.peak_bytes:.1%}"))
            report.measure("hbm_padding", each.bytes, "bytes", of=f"{name}/{axis}/{each.size}/{each.in_tiles}")
    if rows:
        size = "bytes, about" if account.is_extrapolated else "bytes"
        report.fact(f"{name}: padding", columns(rows, ("axis", "size", "in tiles", size, "of the peak")))


def _matrix_units(account: ProgramAccount, run: AotRun, slice_: Slice, report: StageReport) -> None:
    """Adds the part of the matrix units' work that is on zeros, by the sizes that do not fill them."""
    name, unit = account.program.name, slice_.generation.matrix_unit
    sizes = [each for each in account.costs.product_sizes if each.flops]
    if not sizes:
        return
    whole = sum(each.flops / each.filled(unit) for each in sizes)
    report.measure("matrix_unit_padding", 1 - sum(each.flops for each in sizes) / whole, of=name)
    lost: dict[int, float] = {}
    for each in sizes:
        lost[each.contracted] = lost.get(each.contracted, 0) + each.flops / each.filled(unit) - each.flops
    names = names_by_size(run.axes, account.program)
    rows = [
        (names.get(size, "-"), size, f"{part / whole:.1%}")
        for size, part in sorted(lost.items(), key=lambda item: -item[1])
        if part >= _PADDING * whole
    ]
    if rows:
        head = ("axis", "contracted", "of their work on padding, at least")
        report.fact(f"{name}: matrix units of {unit} x {unit}", columns(rows, head))


def _padding(buffer: Buffer) -> str:
    return f"{buffer.padding_bytes / buffer.bytes:.0%}" if buffer.padding_bytes else "-"


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
    name, tokens = account.program.name, account.program.tokens
    time = step_time(account.costs, slice_.generation)
    price = price_of(slice_, prices)
    steps = run.steps if name == TRAIN else None
    whole = estimate(time, slice_, steps or 1, tokens, price)
    rows = [("seconds of a step", *_three(whole.step_seconds)), ("tokens/s", *_three(whole.tokens_per_second))]
    report.measure("step_seconds_at_least", whole.step_seconds.bound, "seconds", of=name)
    if steps:
        rows += [(f"hours of {steps} steps", *_three(whole.hours)), ("chip-hours", *_three(whole.chip_hours))]
        report.measure("hours_at_least", whole.hours.bound, "hours", of=name)
        report.measure("chip_hours_at_least", whole.chip_hours.bound, "chip-hours", of=name)
        if whole.usd is not None:
            rows.append(("USD", *_three(whole.usd)))
            report.measure("usd_at_least", whole.usd.bound, "USD", of=name)
    head = ("", f"at least, by {time.limit}", "band, best", "band, worst")
    report.fact(f"{name}: time", columns(rows, head))
    report.fact(f"{name}: the band", BAND_NAME)
    if steps:
        report.fact(f"{name}: the price", price or "no source is known for the price of this generation")
    if time.ici_seconds is None:
        _leave_open(
            f"{UNKNOWN_LINKS}: what {slice_.generation.name} chips send each other has no sourced figure",
            report,
        )


def _leave_open(what: str, report: StageReport) -> None:
    """Notes once what could not be judged."""
    if what not in report.not_checked:
        report.not_checked.append(what)


def _three(span: Span) -> tuple[str, str, str]:
    return (f"{span.bound:.3g}", f"{span.best:.3g}", f"{span.worst:.3g}")
