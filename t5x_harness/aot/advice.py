"""The smallest change that makes a program fit. Each change is compiled before it is suggested."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from t5x_harness.aot.account import ProgramAccount
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.measuring import account_program
from t5x_harness.aot.refusals import NotCompiled
from t5x_harness.aot.request import TRAIN, AotRun, Knob, ProgramSpec
from t5x_harness.aot.variants import (
    REMAT,
    RunVariant,
    TunedRun,
    VariantRefused,
    literal,
    own_microbatches,
    own_partitions,
    own_value,
    tune,
)
from t5x_harness.aot.verdicts import required_bytes
from t5x_harness.gin.reading import program_of
from t5x_harness.lint.edits import set_literal, write_value
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Edit, RunSpec, Stage
from t5x_harness.workers.errors import WorkerError

_OF_EACH_KIND = {"num_microbatches": 3, "num_partitions": 2}
"""How many changes of a kind are compiled; one of every other kind."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """How to change a run whose program does not fit.

    Attributes:
      fix: the first change that fits, with the memory that it needs; otherwise what was tried. Empty if nothing was.
      edits: the same change in the user's files; empty if none of their lines has it.
    """

    fix: str = ""
    edits: tuple[Edit, ...] = ()


def advise(program: ProgramSpec, run: AotRun, spec: RunSpec, compiler: Compiler) -> Advice:
    """Compiles a program with one change after the other, the smallest first, until one fits.

    Args:
      program: the program that does not fit.
      run: the run that it belongs to.
      spec: the run's specification, whose ``settings.aot`` says how to compile.
      compiler: the run's compiler.
    """
    tried: list[str] = []
    for tuned in _candidates(program, run, spec):
        if compiler.on_progress is not None:
            note = f"{program.name} does not fit; trying {tuned.changes}"
            compiler.on_progress({"stage": Stage.AOT.value, "note": note})
        (changed,) = tuned.run.programs
        try:
            account = account_program(tuned.run, changed, tuned.spec, compiler)
        except (NotCompiled, WorkerError) as error:
            tried.append(f"{tuned.changes} (not compiled: {str(error).partition(chr(10))[0]})")
            continue
        if isinstance(account, ProgramAccount):
            how = "extrapolated from compiled layers" if account.is_extrapolated else "compiled"
            needed: int | None = account.needed_bytes
            if account.needed_bytes <= get_slice(tuned.spec.slice).usable_hbm_bytes:
                before = f"; tried before: {', '.join(tried)}" if tried else ""
                return Advice(f"{tuned.changes}: {_gib(needed)}, {how}{before}", _edits(tuned, run, spec))
        else:
            needed = required_bytes(account) if account is not None else None
        tried.append(f"{tuned.changes} ({_gib(needed)})")
    return Advice(f"none of these is enough: {', '.join(tried)}; t5x-harness fit tries more" if tried else "")


def _candidates(program: ProgramSpec, run: AotRun, spec: RunSpec) -> Iterator[TunedRun]:
    """Yields the changes to compile, a limited number of each kind."""
    for kind, variants in _changes(program, run, spec):
        left = _OF_EACH_KIND.get(kind, 1)
        for variant in variants:
            try:
                tuned = tune(run, spec, variant, [program])
            except VariantRefused:
                continue
            yield tuned
            left -= 1
            if not left:
                break


def _changes(program: ProgramSpec, run: AotRun, spec: RunSpec) -> Iterator[tuple[str, list[RunVariant]]]:
    """Yields the changes of each kind, the smallest first."""
    batch = next((shape[0] for shape in program.shapes.values()), 0)
    if program.name == TRAIN:
        parts = own_microbatches(run)
        doubled = [parts * 2**power for power in range(1, batch.bit_length())]
        yield "num_microbatches", [RunVariant(num_microbatches=number) for number in doubled]
        policy = own_value(run, "remat_policy") or REMAT[0]
        stronger = REMAT[REMAT.index(policy) + 1 :] if "remat_policy" in run.knobs and policy in REMAT else ()
        yield "remat_policy", [RunVariant(remat_policy=name) for name in stronger]
    slice_ = get_slice(spec.slice)
    partitions = own_partitions(run)
    if partitions is not None:
        more = [partitions * 2**power for power in range(1, slice_.num_devices.bit_length())]
        yield "num_partitions", [RunVariant(num_partitions=number) for number in more]
    knob = run.knobs.get("batch_size")
    if knob is not None and program.batch == knob.binding and batch > 1:
        yield "batch_size", [RunVariant(batch_size=batch // 2)]
    names = [f"{slice_.generation.name}-{size}" for size, _ in slice_.generation.sizes]
    larger = [name for name in names if get_slice(name).num_chips > slice_.num_chips]
    yield "slice", [RunVariant(slice=name) for name in larger[:1]]


def _edits(tuned: TunedRun, run: AotRun, spec: RunSpec) -> tuple[Edit, ...]:
    """Returns the change as edits of the user's files; empty if a part of it is in none of their lines."""
    if tuned.is_elsewhere:
        return ()
    edits = [_edit(run.knobs[name], text, spec) for name, text in tuned.bindings.items()]
    return tuple(edit for each in edits for edit in each) if all(edits) else ()


def _edit(knob: Knob, binding: str, spec: RunSpec) -> tuple[Edit, ...]:
    if knob.location is None:
        return ()
    program, value = program_of(spec), binding.partition(" = ")[2]
    if knob.value == "None":
        return write_value(program, knob.location, value)
    return set_literal(program, knob.location, literal(knob.value), value)


def _gib(size: int | None) -> str:
    return "more than there is" if size is None else f"{size / 2**30:.2f} GiB"
