"""The findings of the aot stage about memory: a program needs too much, or nearly all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from t5x_harness.aot.account import ProgramAccount
from t5x_harness.aot.compiling import CompiledProgram
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Finding, Location, Severity, Stage

TOO_LARGE = "AOT01"
"""The code for a program that does not fit."""

_CLOSE = 0.03
"""The error of extrapolating, which docs/aot.md measures, as a part of the memory that a program may use."""

_REQUIRED = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def judge(account: ProgramAccount, run: AotRun, slice_: Slice) -> Iterator[Finding]:
    """Yields findings about a program that compiles, or is extrapolated from layers that do."""
    name, usable, needed = account.program.name, slice_.usable_hbm_bytes, account.needed_bytes
    about = "about " if account.is_extrapolated else ""
    if needed > usable:
        yield _too_large(name, f"{about}{_gib(needed)}", needed - usable, run, slice_)
    elif account.is_extrapolated and usable - needed < _CLOSE * usable:
        yield Finding(
            "AOT05",
            Severity.WARNING,
            Stage.AOT,
            f"{name} needs about {_gib(needed)} of the {_gib(usable)} that a program may use on each device of "
            f"{slice_.name}: so close to the limit, numbers extrapolated from few layers do not decide",
            _place(run),
            "compile all layers: --aot=memory",
        )
    elif usable - needed < account.unknown_bytes:
        yield Finding(
            "AOT05",
            Severity.WARNING,
            Stage.AOT,
            f"{name} needs {about}{_gib(needed)} of the {_gib(usable)} that a program may use on each device of "
            f"{slice_.name}, without its code, which was not generated: up to {_gib(account.unknown_bytes)}, judging "
            f"by other programs, and {_gib(usable - needed)} are left",
            _place(run),
            "compile to the machine's code: --aot=full",
        )


def out_of_memory(program: ProgramSpec, compiled: CompiledProgram, run: AotRun, slice_: Slice) -> Finding:
    """Makes the finding for a program that ran out of the device's memory, perhaps with only some of its layers."""
    needed = required_bytes(compiled)
    if needed is None:
        return _too_large(program.name, "more", None, run, slice_)
    return _too_large(program.name, f"at least {_gib(needed)}", needed - slice_.usable_hbm_bytes, run, slice_)


def required_bytes(compiled: CompiledProgram) -> int | None:
    """Returns the memory that a program needs according to the compiler's message; None if the message lacks it."""
    assert compiled.result is not None
    found = _REQUIRED.search(compiled.result.message) or _USED.search(compiled.result.message)
    return int(float(found[1]) * _UNITS[found[2]]) if found is not None else None


def _too_large(name: str, needed: str, over: int | None, run: AotRun, slice_: Slice) -> Finding:
    usable = slice_.usable_hbm_bytes
    missing = f": {_gib(over)} too much" if over is not None and over > 0 else ""
    return Finding(
        TOO_LARGE,
        Severity.ERROR,
        Stage.AOT,
        f"{name} needs {needed} of each device of {slice_.name}, and a program may use {_gib(usable)}{missing}",
        _place(run),
        "use more microbatches, more partitions, a smaller batch, or a larger slice",
    )


def _place(run: AotRun) -> Location | None:
    knob = run.knobs.get("batch_size")
    return knob.location if knob is not None else None


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
