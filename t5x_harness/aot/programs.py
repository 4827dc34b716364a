"""The programs of a run as T5X itself compiles them for the slice: train, eval, predict and score step.

T5X's own objects make them. The config's trainer gives its partitioned step to the partitioner to be compiled, and
``get_infer_fn`` calls the step that it has partitioned. Both are stopped there, with the step and its arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from t5x import utils

from t5x_harness.aot.compiler import fingerprint
from t5x_harness.aot.libtpu import describe_devices
from t5x_harness.aot.operations import not_for_tpu
from t5x_harness.aot.request import EVAL, SCORE, TRAIN, LoweredProgram, ProgramSpec
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.state_shapes import StateShapes, state_shapes
from t5x_harness.slices.slice import Slice
from t5x_harness.upstream.t5x import install_mesh


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
      JAX's ``Lowered``, and what is known of the program.

    Raises:
      LibtpuMissing: there is no TPU compiler.
      NotCompiled: the program has an operation that JAX does not have for TPUs.
      Exception: what T5X, the model or JAX raises.
    """
    install_mesh(slice_, devices=describe_devices(slice_))
    partitioner = config.build("partitioner")
    state, captured = capture(program, config, partitioner)
    try:
        lowered = captured.function.lower(*captured.arguments)
    except NotImplementedError as error:
        raise not_for_tpu(program.name, error, captured.function, captured.arguments) from error
    text, mesh = lowered.as_text(), partitioner.mesh
    devices = tuple(int(device.id) for device in mesh.devices.flat)
    name = fingerprint(text, slice_, devices)
    return lowered, LoweredProgram(name, text.count("\n"), dict(mesh.shape), devices, state.device_bytes(mesh.shape))


def capture(program: ProgramSpec, config: GinConfig, partitioner: Any) -> tuple[StateShapes, Captured]:
    """Captures a program before it is traced: the state that it is given, its function and its arguments.

    Args:
      program: the program.
      config: the run's config.
      partitioner: T5X's own.

    Raises:
      Exception: what T5X or the model raises.
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
        utils.set_hardware_rng_ops()  # as train() does before it makes a key
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
    import tensorflow as tf

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
        # T5X gives a host's part of the batch here, and joins the hosts' parts before it calls the step.
        parameters, examples, step_rng, indices, *rest = captured.arguments
        whole = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), (examples, indices))
        return Captured(captured.function, (parameters, whole[0], step_rng, whole[1], *rest))
    raise RuntimeError(f"T5X's get_infer_fn did not call the step that it partitioned for {program.name}")
