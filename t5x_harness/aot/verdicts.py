"""What the aot stage finds wrong: too much memory, hardly enough, or a program that the compiler does not take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from t5x_harness.aot.account import ProgramAccount
from t5x_harness.aot.compiling import CompiledProgram
from t5x_harness.aot.request import AotRun, ProgramSpec
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Finding, Location, Severity, Stage

TOO_LARGE = "AOT01"
"""The code of a program that does not fit."""

_CLOSE = 0.03
"""Of the memory that a program may use: what docs/aot.md measures as the error of extrapolating."""

_REQUIRED = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def judge(account: ProgramAccount, run: AotRun, slice_: Slice) -> Iterator[Finding]:
    """Yields what is wrong with a program that compiles, or is extrapolated from layers that do."""
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
            f"{slice_.name}: that close to the limit, numbers drawn from few layers do not tell",
            _place(run),
            "compile all layers: --aot=memory",
        )
    elif usable - needed < account.unknown_bytes:
        yield Finding(
            "AOT05",
            Severity.WARNING,
            Stage.AOT,
            f"{name} needs {about}{_gib(needed)} of the {_gib(usable)} that a program may use on each device of "
            f"{slice_.name}, and its code beside that, which was not generated: up to {_gib(account.unknown_bytes)}, "
            f"by other programs, where {_gib(usable - needed)} are left",
            _place(run),
            "compile to the machine's code: --aot=full",
        )


def out_of_memory(program: ProgramSpec, compiled: CompiledProgram, run: AotRun, slice_: Slice) -> Finding:
    """Returns the finding for a program that the compiler has no memory for.

    With fewer layers than the config has it did not fit either.
    """
    needed = required_bytes(compiled)
    if needed is None:
        return _too_large(program.name, "more", None, run, slice_)
    return _too_large(program.name, f"at least {_gib(needed)}", needed - slice_.usable_hbm_bytes, run, slice_)


def required_bytes(compiled: CompiledProgram) -> int | None:
    """Returns how much memory the compiler says a program needs that does not fit; None where it does not say."""
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
