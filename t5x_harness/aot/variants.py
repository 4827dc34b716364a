"""Varies the settings of a run that affect memory, and finds the smallest change that makes it fit.

Arithmetic rules out some changes; each other change is compiled before it is suggested.
"""

import ast
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_harness.aot.account import ProgramAccount, account_program
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.refusals import NotCompiled
from t5x_harness.aot.request import TRAIN, AotRun, ProgramSpec
from t5x_harness.findings.text import Bytes
from t5x_harness.gin.reading import program_of
from t5x_harness.lint.edits import set_literal, write_value
from t5x_harness.slices.mesh import MeshPlan, MeshRefused, fitting_submeshes, plan_mesh
from t5x_harness.slices.slice import Slice, get_slice
from t5x_harness.spec import Edit, RunSpec, Stage
from t5x_harness.system.decode import JsonValue
from t5x_harness.workers.errors import WorkerError

REMAT = ("none", "minimal", "full")
"""The rematerialization policies of T5X's scalable networks, from none to all of a layer."""

_MESH = {"data", "model"}


class VariantRefused(ValueError):
    """Arithmetic shows that a variant cannot run or cannot fit; the message says why."""


@dataclasses.dataclass(frozen=True)
class RunVariant(JsonValue):
    """Settings that differ from a run's config; None for settings that do not differ.

    Attributes:
      slice: the slice where it runs.
      num_partitions: the number of devices that hold one copy of the model.
      batch_size: the number of examples of a step.
      num_microbatches: the number of parts that a train step processes one after the other.
      remat_policy: the rematerialization policy; see :data:`REMAT`.
    """

    slice: str | None = None
    num_partitions: int | None = None
    batch_size: int | None = None
    num_microbatches: int | None = None
    remat_policy: str | None = None


@dataclasses.dataclass(frozen=True)
class TunedRun:
    """A run with the settings of a variant.

    Attributes:
      run: the run for the aot stage.
      spec: the specification to start.
      bindings: its bindings in addition to the config, by knob.
      variant: the settings, with the config's own filled in.
      is_elsewhere: whether it runs on another slice.
    """

    run: AotRun
    spec: RunSpec
    bindings: Mapping[str, str]
    variant: RunVariant
    is_elsewhere: bool

    @property
    def changes(self) -> str:
        """The changes in the notation of the command line and Gin: ``--slice=v3-32 and BATCH_SIZE = 64``."""
        return " and ".join([*[f"--slice={self.variant.slice}"][: self.is_elsewhere], *self.bindings.values()])


def tune(run: AotRun, spec: RunSpec, variant: RunVariant, programs: Sequence[ProgramSpec]) -> TunedRun:
    """Makes a run with other settings.

    Args:
      run: the run, as its plan describes it.
      spec: its specification.
      variant: the other settings.
      programs: the programs that have to fit.

    Raises:
      VariantRefused: T5X has no mesh for it, its batch cannot be shared, its train state alone does not fit, or the
        config has nothing to set.
    """
    slice_ = get_slice(variant.slice or spec.slice)
    mesh, bound = _mesh(run, slice_, variant.num_partitions)
    for name in ("batch_size", "num_microbatches", "remat_policy"):
        wanted, own = getattr(variant, name), own_value(run, name)
        if wanted is None or wanted == (own if name != "num_microbatches" else own_microbatches(run)):
            continue
        if name not in run.knobs:
            raise VariantRefused(f"the config has no {name} to set")
        bound[name] = wanted
    batch = bound.get("batch_size")
    knob = run.knobs.get("batch_size")
    sized = tuple(_with_batch(program, knob.binding if knob else "", batch) for program in programs)
    shape = dict(run.mesh) if mesh is None else mesh.shape
    state = {kind: _cut(sizes, shape) for kind, sizes in run.cut_bytes.items()}
    parts = variant.num_microbatches or own_microbatches(run)
    for program in sized:
        if mesh is not None:
            _require_shares(program, parts if program.name == TRAIN else 1, mesh)
        _require_room(program, state.get(program.name, 0), slice_)
    bindings = {name: f"{run.knobs[name].binding} = {value!r}" for name, value in bound.items()}
    full = RunVariant(
        slice_.name,
        shape.get("model"),
        batch if batch is not None else own_value(run, "batch_size"),
        parts,
        bound.get("remat_policy", own_value(run, "remat_policy")),
    )
    return TunedRun(
        dataclasses.replace(run, programs=sized, state_bytes=state or run.state_bytes, mesh=shape),
        dataclasses.replace(spec, slice=slice_.name, bindings=(*spec.bindings, *bindings.values())),
        bindings,
        full,
        slice_ != get_slice(spec.slice),
    )


def own_value(run: AotRun, name: str) -> Any:
    """Returns the config's value of a knob; None if it has none, or one that is not a literal."""
    knob = run.knobs.get(name)
    return literal(knob.value) if knob is not None else None


def literal(text: str) -> Any:
    """Parses gin text; returns None if it is not a literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def own_microbatches(run: AotRun) -> int:
    """Returns the number of microbatches of a train step; 1 if the batch is not divided."""
    parts = own_value(run, "num_microbatches")
    return parts if isinstance(parts, int) and parts > 1 else 1


def own_partitions(run: AotRun) -> int | None:
    """Returns the number of devices that hold one copy of the model; None if no literal in the config sets it."""
    submesh = own_value(run, "model_parallel_submesh")
    if submesh:
        return int(math.prod(submesh))
    number = own_value(run, "num_partitions")
    return number if isinstance(number, int) else None


def _mesh(run: AotRun, slice_: Slice, partitions: int | None) -> tuple[MeshPlan | None, dict[str, Any]]:
    """Returns the mesh and the bindings for it; no mesh if the config's partitioner is not T5X's own."""
    own, submesh = own_partitions(run), own_value(run, "model_parallel_submesh")
    wanted = partitions or own
    if set(run.mesh) != _MESH or wanted is None:
        if partitions is None:
            return None, {}
        raise VariantRefused("the config's partitioner has no num_partitions to set")
    if wanted == own:
        try:
            return plan_mesh(slice_, own, submesh), {}
        except MeshRefused:
            pass
    bound: dict[str, Any] = {} if wanted == own else {"num_partitions": wanted}
    try:
        mesh = plan_mesh(slice_, wanted)
        if submesh:
            bound["model_parallel_submesh"] = None
    except MeshRefused as refused:
        # T5X has default submeshes only for some numbers on v2 to v4.
        fitting = next(iter(fitting_submeshes(slice_, wanted)), None)
        if fitting is None:
            raise VariantRefused(str(refused)) from None
        mesh = plan_mesh(slice_, wanted, fitting)
        bound["model_parallel_submesh"] = fitting
    if missing := bound.keys() - run.knobs.keys():
        raise VariantRefused(f"the config's partitioner has no {' and no '.join(sorted(missing))} to set")
    return mesh, bound


def _with_batch(program: ProgramSpec, binding: str, batch: int | None) -> ProgramSpec:
    if batch is None or program.batch != binding:
        return program
    shapes = {name: (batch, *shape[1:]) for name, shape in program.shapes.items()}
    return dataclasses.replace(program, shapes=shapes)


def _require_shares(program: ProgramSpec, parts: int, mesh: MeshPlan) -> None:
    batch = next((shape[0] for shape in program.shapes.values()), 0)
    positions = mesh.shape["data"]
    if batch % parts:
        raise VariantRefused(f"the batch of {batch} does not divide into {parts} microbatches")
    if batch // parts % positions:
        each = f"the {batch // parts} examples of a microbatch do" if parts > 1 else f"the batch of {batch} does"
        raise VariantRefused(f"{each} not divide over the {positions} positions of the data axis")


def _require_room(program: ProgramSpec, state: int, slice_: Slice) -> None:
    if state > slice_.usable_hbm_bytes:
        what = "train state" if program.name.startswith(TRAIN) else "parameters"
        limit = f"of the {Bytes(slice_.usable_hbm_bytes)} that a program may use"
        raise VariantRefused(f"the {what} of {program.name} alone: {Bytes(state)} on each device, {limit}")


def _cut(sizes: Mapping[str, int], mesh: Mapping[str, int]) -> int:
    return sum(size // math.prod(mesh[axis] for axis in axes.split("+") if axis) for axes, size in sizes.items())


_OF_EACH_KIND = {"num_microbatches": 3, "num_partitions": 2}
"""The largest number of changes of a kind to compile; one for every other kind."""


def advise(program: ProgramSpec, run: AotRun, spec: RunSpec, compiler: Compiler) -> tuple[str, tuple[Edit, ...]]:
    """Compiles a program with one change after the other, the smallest first, until one fits.

    Args:
      program: the program that does not fit.
      run: the run that it belongs to.
      spec: the run's specification, whose ``settings.aot`` says how to compile.
      compiler: the run's compiler.

    Returns:
      The first change that fits, with the memory that it needs, and the same change in the user's files, if their lines
      set it. If none fits, the changes that were tried, if any.
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
        needed = account.needed_bytes if isinstance(account, ProgramAccount) else account.required_bytes
        usable = get_slice(tuned.spec.slice).usable_hbm_bytes
        if isinstance(account, ProgramAccount) and account.needed_bytes <= usable:
            how = "extrapolated from compiled layers" if account.is_extrapolated else "compiled"
            before = f"; tried before: {', '.join(tried)}" if tried else ""
            return f"{tuned.changes}: {gib(needed)}, {how}{before}", _edits(tuned, run, spec)
        tried.append(f"{tuned.changes} ({gib(needed)})")
    return f"none of these is enough: {', '.join(tried)}; t5x-harness fit tries more" if tried else "", ()


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
    """Returns the change as edits of the user's files; empty if none of their lines sets a part of it."""
    edits: list[Edit] = []
    for name, binding in tuned.bindings.items():
        knob, value = run.knobs[name], binding.partition(" = ")[2]
        if tuned.is_elsewhere or knob.location is None:
            return ()
        program = program_of(spec)
        if knob.value == "None":
            changed = write_value(program, knob.location, value)
        else:
            changed = set_literal(program, knob.location, literal(knob.value), value)
        if not changed:
            return ()
        edits += changed
    return tuple(edits)


def gib(size: int | None) -> str:
    """Formats the memory that a program needs; None if the compiler did not say how much."""
    return "more than there is" if size is None else f"{size / 2**30:.2f} GiB"
