"""The programs that a planned run has on the slice, and the facts of its plan that their accounts need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from t5x_harness.aot.axes import axis_sizes
from t5x_harness.aot.request import EVAL, PREDICT, SCORE, TRAIN, AotRun, Knob, LayerStack, ProgramSpec
from t5x_harness.gin.config import BindingKey
from t5x_harness.plan.arrays import Leaf
from t5x_harness.plan.planned import Planned, microbatches_key
from t5x_harness.plan.state_shapes import model_inputs
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.resolved import LAYERS, bound_integers, lengths_of
from t5x_harness.spec import Mode
from t5x_harness.upstream.seqio import metric_objects

_SCANNED = "layers"
"""The logical axis of parameters whose layers are one array."""


def aot_run(plan: Planned) -> AotRun:
    """Describes a planned run for the aot stage."""
    left_out: list[str] = []
    programs = tuple(_programs(plan, left_out)) if plan.shapes is not None else ()
    if plan.shapes is None:
        left_out.append("the programs: the model's shapes are not known")
    leaves = plan.shapes.leaves if plan.shapes is not None else ()
    parameters = sum(leaf.device_bytes(plan.mesh) for leaf in leaves if leaf.path.startswith("target/"))
    state = sum(leaf.device_bytes(plan.mesh) for leaf in leaves)
    return AotRun(
        programs,
        tuple(LayerStack(key.short, layers) for key, layers in bound_integers(plan.config, LAYERS)),
        any(_SCANNED in leaf.names for leaf in leaves),
        {TRAIN: state, EVAL: state, PREDICT: parameters, SCORE: parameters},
        plan.steps.to_train if plan.steps is not None else None,
        dict(_knobs(plan)),
        tuple(left_out),
        dict(plan.mesh),
        _cut_bytes(leaves),
        axis_sizes(leaves, plan.mesh),
    )


def _programs(plan: Planned, left_out: list[str]) -> Iterator[ProgramSpec]:
    for role in plan.run.roles:
        if role.parameter == "train_dataset_cfg":
            yield from _program(plan, role, TRAIN, "", left_out)
        elif role.parameter == "train_eval_dataset_cfg":
            yield from _program(plan, role, EVAL, "", left_out)
        elif plan.config.mode is Mode.INFER:
            mode = plan.config.value(plan.config.owner_of("mode"))
            method = "score_batch" if mode == "score" else f"predict_batch{str(mode).removeprefix('predict')}"
            yield from _program(plan, role, SCORE if mode == "score" else PREDICT, method, left_out)
        else:
            for kind, method in _evaluated_by(plan, role):
                yield from _program(plan, role, kind, method, left_out)


def _evaluated_by(plan: Planned, role: DataRole) -> Iterator[tuple[str, str]]:
    """Yields the kinds of programs and the model's methods that SeqIO's evaluator uses for a dataset's metrics."""
    tasks = plan.run.tasks[role.parameter]
    outputs = {metric.model_output_type.name for task in tasks for metric in metric_objects(task)}
    if "PREDICTION" in outputs or any(task.predict_metric_fns for task in tasks):
        yield PREDICT, "predict_batch"
    elif "PREDICTION_WITH_AUX" in outputs or any(task.predict_with_aux_metric_fns for task in tasks):
        yield PREDICT, "predict_batch_with_aux"
    if outputs & {"SCORE", "SCORE_WITH_INTERMEDIATES"} or any(task.score_metric_fns for task in tasks):
        yield SCORE, "score_batch"


def _program(plan: Planned, role: DataRole, kind: str, method: str, left_out: list[str]) -> Iterator[ProgramSpec]:
    size = role.dataset.batch_size
    lengths = lengths_of(role, plan.run.samples, plan.run.tasks[role.parameter])
    if not isinstance(size, int) or not lengths:
        left_out.append(f"{kind} of {role.name}: the shape of its batch is not known here")
        return
    if role.dataset.task_feature_lengths is None:
        left_out.append(
            f"{kind} of {role.name} at the lengths of the job's data: no binding sets them, and the sample that was "
            f"read has {', '.join(f'{length} {name}' for name, length in lengths.items())}"
        )
    packed = role.dataset.pack and kind in (TRAIN, EVAL)
    shapes, types = model_inputs(plan.run.model, lengths, size, packed)
    batch = role.key(plan.config, "batch_size")
    names = {name: str(dtype) for name, dtype in types.items()}
    yield ProgramSpec(kind, role.parameter, method, shapes, names, batch.short if batch else "")


def _cut_bytes(leaves: Iterable[Leaf]) -> dict[str, dict[str, int]]:
    whole: dict[str, int] = {}
    parameters: dict[str, int] = {}
    for leaf in leaves:
        names = (name for axes in leaf.spec for name in (axes if isinstance(axes, tuple) else (axes,)) if name)
        axes = "+".join(sorted(names))
        size = leaf.size * leaf.dtype.itemsize
        whole[axes] = whole.get(axes, 0) + size
        if leaf.path.startswith("target/"):
            parameters[axes] = parameters.get(axes, 0) + size
    return {TRAIN: whole, EVAL: whole, PREDICT: parameters, SCORE: parameters}


def _knobs(plan: Planned) -> Iterator[tuple[str, Knob]]:
    config = plan.config
    found: dict[str, BindingKey | None] = {
        name: config.find(name) for name in ("num_partitions", "model_parallel_submesh", "remat_policy")
    }
    found["num_microbatches"] = microbatches_key(plan)
    train = next((role for role in plan.run.roles if role.parameter == "train_dataset_cfg"), None)
    role = train or next(iter(plan.run.roles), None)
    if role is not None:
        found["batch_size"] = role.key(config, "batch_size")
    for name, key in found.items():
        if key is not None:
            owner = config.owner(key)
            yield name, Knob(owner.short, repr(config.value(owner)), config.location(owner))
        elif (unbound := _unbound(plan, name)) is not None:
            yield name, unbound


def _unbound(plan: Planned, name: str) -> Knob | None:
    """Makes the knob for a parameter that no line binds; None if what the config uses has no such parameter."""
    if name == "remat_policy":
        network: Any = getattr(getattr(plan.run.model, "module", None), "config", None)
        if not hasattr(network, name):
            return None
        kind = type(network)
        return Knob(BindingKey("", f"{kind.__module__}.{kind.__name__}", name).short, repr(network.remat_policy), None)
    owner = "trainer_cls" if name == "num_microbatches" else "partitioner"
    selector = next(iter(plan.config.references(plan.config.entry_bindings().get(owner))), "%")
    if selector.startswith("%") or name == "batch_size":
        return None
    return Knob(BindingKey("", selector, name).short, "None", None)
