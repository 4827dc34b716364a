"""The programs of a run, as its plan describes them and as T5X itself compiles them for the slice.

T5X's own objects make them. The config's trainer gives its partitioned step to the partitioner to be compiled, and
``get_infer_fn`` calls the step that it has partitioned. Both are stopped there, with the step and its arguments.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from t5x import utils

from t5x_harness.aot.libtpu import describe_devices, fingerprint
from t5x_harness.aot.refusals import not_for_tpu
from t5x_harness.aot.request import (
    EVAL,
    PREDICT,
    SCORE,
    TRAIN,
    AotRun,
    Knob,
    LoweredProgram,
    ProgramSpec,
    axis_sizes,
)
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.arrays import Leaf
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.state_shapes import StateShapes, model_inputs, state_shapes
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.resolved import LAYERS, bound_integers
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Mode
from t5x_harness.upstream.seqio import metric_objects
from t5x_harness.upstream.t5x import install_mesh

_SCANNED = "layers"
"""The logical axis of parameters that hold all layers in one array."""


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
        {key.short: layers for key, layers in bound_integers(plan.config, LAYERS)},
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
    lengths = plan.run.lengths_of(role, plan.run.tasks[role.parameter])
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
    found["num_microbatches"] = plan.microbatches_key
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
    """Makes the knob for a parameter that no line binds; returns None if nothing in use has this parameter."""
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


class Captured(Exception):
    """Carries the function that was about to be compiled or called, and its arguments."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments


def lower(program: ProgramSpec, config: GinConfig, slice_: Slice) -> tuple[Any, LoweredProgram]:
    """Lowers a program; from then on, this process builds meshes of the slice's own devices.

    Args:
      program: the program.
      config: the run's config.
      slice_: the slice.

    Returns:
      JAX's ``Lowered``, and the facts about the program.

    Raises:
      LibtpuMissing: there is no TPU compiler.
      NotCompiled: the program has an operation that JAX does not have for TPUs.
      Exception: T5X, the model or JAX raises it.
    """
    install_mesh(slice_, devices=describe_devices(slice_))
    partitioner = config.build("partitioner")
    state, captured = capture(program, config, partitioner)
    try:
        lowered = captured.function.lower(*captured.arguments)
    except NotImplementedError as error:
        raise not_for_tpu(error, captured.function, captured.arguments) from error
    text, mesh = lowered.as_text(), partitioner.mesh
    devices = tuple(int(device.id) for device in mesh.devices.flat)
    name = fingerprint(text, slice_, devices)
    return lowered, LoweredProgram(name, text.count("\n"), dict(mesh.shape), state.device_bytes(mesh.shape))


def capture(program: ProgramSpec, config: GinConfig, partitioner: Any) -> tuple[StateShapes, Captured]:
    """Captures a program before it is traced: its train state, its function and its arguments.

    Args:
      program: the program.
      config: the run's config.
      partitioner: T5X's partitioner.

    Raises:
      Exception: T5X or the model raises it.
    """
    model = config.build("model")
    types = {name: np.dtype(kind) for name, kind in program.types.items()}
    state = state_shapes(
        model,
        partitioner,
        (program.shapes, types),
        with_optimizer=program.name in (TRAIN, EVAL),
        initializer_cls=config.build("train_state_initializer_cls"),
    )
    batch = {name: np.zeros(shape, types[name]) for name, shape in program.shapes.items()}
    if program.name in (TRAIN, EVAL):
        return state, _trained(program, config, model, state.initializer, partitioner, batch)
    return state, _inferred(program, model, state.initializer, partitioner, batch)


def _trained(
    program: ProgramSpec, config: GinConfig, model: Any, initializer: Any, partitioner: Any, batch: Mapping[str, Any]
) -> Captured:
    if config.value(config.owner_of("random_seed")) is None or config.value(config.owner_of("use_hardware_rng")):
        utils.set_hardware_rng_ops()  # like train(), before it makes a key
    trainer = config.build("trainer_cls")(
        model=model,
        train_state=initializer.global_train_state_shape,
        partitioner=partitioner,
        train_state_axes=initializer.train_state_axes,
        eval_names=[program.role],
        summary_dir=None,
        rng=jax.random.PRNGKey(0),
    )
    try:
        partitioner.compile = _capture
        if program.name == TRAIN:
            trainer.compile_train(batch)
        else:
            trainer.compile_eval({program.role: batch})
    except Captured as captured:
        return captured
    finally:
        del partitioner.compile
        trainer.close()
    raise RuntimeError(f"{type(trainer).__name__} does not have its partitioner compile the {program.name} step")


def _capture(step: Any, *arguments: Any) -> None:
    raise Captured(step, arguments)


def _inferred(
    program: ProgramSpec, model: Any, initializer: Any, partitioner: Any, batch: Mapping[str, Any]
) -> Captured:
    size = next(iter(batch.values())).shape[0]
    original = partitioner.partition

    def partition(*args: Any, **kwargs: Any) -> Any:
        return functools.partial(_capture, original(*args, **kwargs))

    partitioner.partition = partition
    try:
        infer = utils.get_infer_fn(
            infer_step=getattr(model, program.method),
            batch_size=size,
            train_state_axes=initializer.train_state_axes,
            partitioner=partitioner,
        )
    finally:
        del partitioner.partition
    dataset = tf.data.Dataset.from_tensor_slices(dict(batch)).enumerate()
    rng = None if program.name == SCORE else jax.random.PRNGKey(0)
    try:
        infer(dataset, train_state=initializer.global_train_state_shape, rng=rng)
    except Captured as captured:
        # T5X passes a host's part of the batch here, and joins the hosts' parts before it calls the step.
        parameters, examples, step_rng, indices, *rest = captured.arguments
        whole = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), (examples, indices))
        return Captured(captured.function, (parameters, whole[0], step_rng, whole[1], *rest))
    raise RuntimeError(f"T5X's get_infer_fn did not call the step that it partitioned for {program.name}")
