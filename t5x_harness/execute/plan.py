"""The plan stage: the full-size run in shapes only, and what T5X would refuse or do without a word."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from t5x_harness.execute.checkpoint_source import StartPoint, find_start, stored_shapes
from t5x_harness.execute.checks import Resolved, lengths_of
from t5x_harness.execute.datasets import DataRole
from t5x_harness.execute.gin_config import BindingKey, GinConfig
from t5x_harness.execute.stage_report import StageReport
from t5x_harness.execute.state_shapes import StateShapes, model_inputs, state_shapes
from t5x_harness.mesh import MeshRefused
from t5x_harness.slices import Slice
from t5x_harness.spec import Mode, Severity

__all__ = ["Plan", "plan"]

# What the standard logical axis names stand for, as the names that models bind.
_BINDINGS_OF_AXES: dict[str, tuple[str, ...]] = {
    "vocab": ("vocab_size", "num_embeddings"),
    "mlp": ("mlp_dim", "d_ff", "intermediate_dim"),
    "heads": ("num_heads", "num_attention_heads"),
    "joined_kv": ("num_heads", "head_dim"),
    "kv": ("head_dim",),
    "embed": ("emb_dim", "embed_dim", "d_model"),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the full-size run comes to.

    Attributes:
      mesh: devices by axis.
      start: the checkpoint that the run starts from.
      shapes: the train state; None where it could not be traced.
    """

    mesh: Mapping[str, int]
    start: StartPoint
    shapes: StateShapes | None


def plan(run: Resolved, slice_: Slice, report: StageReport) -> Plan | None:
    """Plans the run at the sizes it names; no array is made.

    Args:
      run: the resolved config.
      slice_: the slice whose mesh is in place.
      report: gets facts, findings and what could not be judged.

    Returns:
      The plan; None where there is no mesh.

    Raises:
      Exception: the model cannot be traced, with the model's own account.
    """
    config = run.config
    partitioner = _partitioner(config, report)
    if partitioner is None:
        return None
    mesh = dict(partitioner.mesh.shape)
    report.fact("slice", slice_.describe())
    report.fact("mesh", " x ".join(f"{axis} {size}" for axis, size in mesh.items()))
    _batches(run, mesh, report)
    start = find_start(config)
    if config.mode is Mode.TRAIN:
        _microbatches(run, report)
        _periods(config, report)
        _steps(config, start, report)
    shapes = _shapes(run, partitioner, report)
    if shapes is not None:
        report.exercised = len(shapes.leaves)
        _describe(shapes, mesh, slice_, report)
        _divisible(config, shapes, mesh, report)
        _matches(config, start, shapes, report)
    report.not_checked.append("activations and temporaries: their memory is known only to the TPU compiler")
    return Plan(mesh, start, shapes)


def _partitioner(config: GinConfig, report: StageReport) -> Any:
    key = config.find("model_parallel_submesh") or config.find("num_partitions")
    try:
        partitioner = config.build("partitioner")
        if partitioner is not None and not isinstance(partitioner, type) and hasattr(partitioner, "mesh"):
            return partitioner
    except Exception as error:
        refused = _cause(error, MeshRefused)
        if refused is None:
            raise
        submesh = config.find("model_parallel_submesh")
        if submesh and config.value(config.owner(submesh)) is None:
            key = config.find("num_partitions")
        report.find(
            "MSH03",
            Severity.ERROR,
            re.split(r"\n\s*In call to", str(refused))[0],
            location=config.location(config.owner(key)) if key else None,
            fix="choose a number of partitions or a submesh that fits the slice",
            binding=key.short if key else None,
        )
        return None
    bound = BindingKey("", config.entry, "partitioner")
    if not config.is_bound(bound):
        report.find("GIN03", Severity.ERROR, "no partitioner is bound", fix=f"bind {bound.short}")
    else:
        value = config.value(bound)
        report.find(
            "GIN20",
            Severity.ERROR,
            f"the partitioner is {value!r}, which is not a partitioner but what makes one",
            location=config.location(bound),
            fix=f"write {value!r}()",
            binding=bound.short,
        )
    return None


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _batches(run: Resolved, mesh: Mapping[str, int], report: StageReport) -> None:
    data = mesh["data"]
    bad: dict[tuple[BindingKey | None, int], list[str]] = {}  # datasets that share a macro share its mistake
    for role in run.roles:
        batch = role.dataset.batch_size
        key = role.key(run.config, "batch_size")
        if not isinstance(batch, int):
            report.find(
                "GIN08",
                Severity.ERROR,
                f"the batch size of {role.name} is {batch!r}, a {type(batch).__name__}",
                location=run.config.location(key),
                fix="give a whole number without quotes",
                binding=key.short if key else None,
            )
        elif batch % data:
            bad.setdefault((key, batch), []).append(role.name)
        else:
            report.fact(f"{role.name} batch", f"{batch}, {batch // data} for each data position")
    for (key, batch), names in bad.items():
        near = sorted({max(1, batch // data) * data, math.ceil(batch / data) * data})
        report.find(
            "MSH02",
            Severity.ERROR,
            f"the batch size of {' and '.join(names)} is {batch}, and the mesh's data axis has {data} positions: "
            f"{batch} / {data} leaves {batch % data}",
            location=run.config.location(key),
            fix=f"set {key.short if key else 'batch_size'} to {' or '.join(map(str, near))}",
            binding=key.short if key else None,
        )


def _microbatches(run: Resolved, report: StageReport) -> None:
    config = run.config
    key = config.find("num_microbatches")
    parts = config.value(config.owner(key)) if key else None
    batch = next((r.dataset.batch_size for r in run.roles if r.name == "train"), None)
    if key and isinstance(parts, int) and parts > 1 and isinstance(batch, int):
        if batch % parts:
            report.find(
                "MSH11",
                Severity.ERROR,
                f"the batch size {batch} is not divisible by {parts} microbatches",
                location=config.location(config.owner(key)),
                fix=f"set {key.short} to a divisor of {batch}",
                binding=key.short,
            )
        else:
            report.fact("microbatches", f"{parts} of {batch // parts} examples")


def _periods(config: GinConfig, report: StageReport) -> None:
    keys = {
        "eval_period": BindingKey("", config.entry, "eval_period"),
        "checkpoint period": config.find("period", "SaveCheckpointConfig"),
        "gc_period": BindingKey("", config.entry, "gc_period"),
    }
    found = {name: config.value(config.owner(key)) for name, key in keys.items() if key}
    periods = {name: n for name, n in found.items() if isinstance(n, int) and n > 0}
    smallest = min(periods.values(), default=1)
    for name, period in periods.items():
        if period % smallest:
            key = keys[name]
            owner = config.owner(key) if key else None
            other = next(n for n, value in periods.items() if value == smallest)
            report.find(
                "MSH12",
                Severity.ERROR,
                f"{name} is {period} and {other} is {smallest}: the smallest period must divide the others, and T5X "
                "checks it only after restoring",
                location=config.location(owner),
                fix=f"set {name} to {period // smallest * smallest or smallest} or {other} to a divisor of {period}",
                binding=owner.short if owner else None,
            )


def _steps(config: GinConfig, start: StartPoint, report: StageReport) -> None:
    total_key = BindingKey("", config.entry, "total_steps")
    owner = config.owner(total_key)
    total = config.value(owner)
    relative = config.value(config.owner(BindingKey("", config.entry, "relative_steps")))
    first = start.step or 0
    if isinstance(relative, int) and relative:
        total = first + relative
    if not isinstance(total, int) or isinstance(total, bool):
        report.find(
            "GIN09" if isinstance(total, float) else "GIN08",
            Severity.ERROR,
            f"the train steps are {total!r}, a {type(total).__name__}; T5X fails on it only after restoring",
            location=config.location(owner),
            fix="give a whole number, without quotes, point or exponent",
            binding=owner.short,
        )
        return
    origin = f"from step {first} of {start.path}" if start.path else "from scratch"
    report.fact("steps", f"{max(0, total - first)}, {origin} to {total}")
    if total < first:
        report.find(
            "CKP01",
            Severity.ERROR,
            f"{owner.short} is {total}, and the checkpoint {start.path} is already at step {first}",
            location=config.location(owner),
            fix=f"train steps count from zero: set {owner.short} to {first} plus the steps to train",
            binding=owner.short,
        )
    elif total == first:
        report.find(
            "CKP02",
            Severity.ERROR,
            f"{owner.short} is {total}, the step of the checkpoint {start.path}: T5X trains no step and succeeds",
            location=config.location(owner),
            fix=f"set {owner.short} to {first} plus the steps to train",
            binding=owner.short,
        )
    period_key = config.find("period", "SaveCheckpointConfig")
    period = config.value(config.owner(period_key)) if period_key else None
    keep_key = config.find("keep", "SaveCheckpointConfig")
    keep = config.value(config.owner(keep_key)) if keep_key else None
    if isinstance(period, int) and period and total > first:
        written = 1 + math.ceil((total - first) / period)
        report.fact("checkpoints", f"{written}, one each {period} steps, {f'the last {keep}' if keep else 'all'} kept")


def _shapes(run: Resolved, partitioner: Any, report: StageReport) -> StateShapes | None:
    role = next((r for r in run.roles if isinstance(r.dataset.batch_size, int)), None)
    if role is None or not getattr(run.model, "FEATURE_CONVERTER_CLS", None):
        report.not_checked.append("the train state: no dataset gives the model's input shapes")
        return None
    return shapes_for(run, role, partitioner)


def shapes_for(run: Resolved, role: DataRole, partitioner: Any) -> StateShapes:
    """The train state's shapes for the data of one role."""
    lengths = lengths_of(role, run.samples, run.tasks[role.parameter])
    training = run.config.mode is Mode.TRAIN
    inputs = model_inputs(run.model, lengths, role.dataset.batch_size, role.dataset.pack if training else False)
    own = run.config.build("train_state_initializer_cls")
    return state_shapes(run.model, partitioner, inputs, with_optimizer=training, initializer_cls=own)


def _describe(shapes: StateShapes, mesh: Mapping[str, int], slice_: Slice, report: StageReport) -> None:
    report.fact("parameters", f"{shapes.num_parameters:,}")
    state = shapes.device_bytes(mesh)
    report.fact(
        "train state on each device"
        if len(shapes.leaves) > len(shapes.parameters) + 1
        else "parameters on each device",
        f"{state / 2**30:.3g} GiB of {slice_.usable_hbm_bytes / 2**30:.4g} GiB",
    )
    if state > slice_.usable_hbm_bytes:
        report.find(
            "MSH09",
            Severity.ERROR,
            f"the train state alone needs {state / 2**30:.1f} GiB on each device, and a {slice_.device_kind} device "
            f"lets a program use {slice_.usable_hbm_bytes / 2**30:.1f} GiB",
            fix="use more partitions, parameter_partitioning_dims=2 in the axis rules, or a larger slice",
        )


def _divisible(config: GinConfig, shapes: StateShapes, mesh: Mapping[str, int], report: StageReport) -> None:
    """MSH06, one finding for each logical axis and size."""
    found: dict[tuple[str, int, int, str], list[str]] = {}
    for leaf in shapes.leaves:
        for index, size, parts, axes in leaf.cuts(mesh):
            if size % parts:
                name = leaf.names[index] if index < len(leaf.names) else None
                found.setdefault((name or f"dimension {index}", size, parts, axes), []).append(leaf.path)
    for (name, size, parts, axes), paths in found.items():
        bound = _bindings_of(config, name)
        key = bound[0] if bound else None
        values = ", ".join(f"{k.short} = {config.value(k)!r} ({config.origin(k)})" for k in bound)
        report.find(
            "MSH06",
            Severity.ERROR,
            f"axis {name} of {paths[0]}{f' and {len(paths) - 1} more arrays' if len(paths) > 1 else ''} has size {size}"
            f", which {parts} devices of the mesh axis {axes} cannot share evenly{f': {values}' if values else ''}",
            location=config.location(key),
            fix=f"make {key.short if key else name} divisible by {parts}, or use fewer partitions",
            binding=key.short if key else None,
        )


def _bindings_of(config: GinConfig, axis: str) -> list[BindingKey]:
    """The bindings that give a logical axis its size."""
    found = []
    for name in _BINDINGS_OF_AXES.get(axis, ()):
        key = config.find(name)
        if key:
            found.append(config.owner(key))
    return found if axis == "joined_kv" else found[:1]


def _matches(config: GinConfig, start: StartPoint, shapes: StateShapes, report: StageReport) -> None:
    """Compares the checkpoint to start from with the model, where the checkpoint can be read here."""
    if not start.path:
        return
    if start.problem:
        report.find(
            start.problem.code,
            start.problem.severity,
            start.problem.message,
            location=config.location(start.key),
            fix=start.problem.fix,
            binding=start.key.short if start.key else None,
        )
        return
    stored = stored_shapes(start.path) if start.reachable else None
    if stored is None:
        report.not_checked.append(f"whether {start.path} fits the model: it cannot be read here")
        return
    ours = {leaf.path: leaf.shape for leaf in shapes.parameters}
    for path, shape in ours.items():
        if path in stored and stored[path] != shape:
            report.find(
                "CKP06",
                Severity.ERROR,
                f"{path} is {stored[path]} in the checkpoint {start.path} and {shape} in the model",
                location=config.location(start.key),
                fix="use the checkpoint of this model's size, or the model of the checkpoint's",
                binding=start.key.short if start.key else None,
            )
            return
    missing = [path for path in ours if path not in stored]
    if missing and not start.transforms:
        report.find(
            "CKP07",
            Severity.ERROR,
            f"the checkpoint {start.path} has no {missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''}",
            location=config.location(start.key),
            fix="use a checkpoint of this architecture and number of layers",
            binding=start.key.short if start.key else None,
        )
    else:
        report.fact("checkpoint", f"{start.path} fits: {len(ours)} arrays of the model")
