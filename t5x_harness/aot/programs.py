"""The programs of a run as T5X itself would compile them for the slice: train, eval, predict and score step.

T5X's own objects make them: the config's trainer hands its partitioned step to the partitioner to be compiled, and
``get_infer_fn`` calls the step that it has partitioned.  Both are stopped there, with the step and its arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from t5x import utils

from t5x_harness.aot.operations import not_for_tpu
from t5x_harness.aot.request import EVAL, SCORE, TRAIN, ProgramSpec
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.state_shapes import StateShapes, state_shapes


class Captured(Exception):
    """What was about to be compiled or called."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments


def lower(program: ProgramSpec, config: GinConfig, partitioner: Any) -> tuple[StateShapes, Any]:
    """Lowers a program for the devices of a partitioner's mesh.

    Args:
      program: which.
      config: the run's config.
      partitioner: T5X's, on a mesh of the slice's devices as the TPU compiler describes them.

    Returns:
      The state that it is given, and JAX's ``Lowered``.

    Raises:
      OperationNotForTpu: it has an operation that JAX does not have for TPUs.
      Exception: what T5X, the model or JAX raises.
    """
    state, captured = capture(program, config, partitioner)
    try:
        return state, captured.function.lower(*captured.arguments)
    except NotImplementedError as error:
        raise not_for_tpu(error, captured.function, captured.arguments) from error


def capture(program: ProgramSpec, config: GinConfig, partitioner: Any) -> tuple[StateShapes, Captured]:
    """Returns the state that a program is given, and its function with the arguments, before it is traced.

    Args:
      program: which.
      config: the run's config.
      partitioner: T5X's.

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
    make = _trained if program.name in (TRAIN, EVAL) else _inferred
    return state, make(program, config, model, state.initializer, partitioner, batch)


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
    program: ProgramSpec, config: GinConfig, model: Any, initializer: Any, partitioner: Any, batch: Mapping[str, Any]
) -> Captured:
    import tensorflow as tf

    size = next(iter(batch.values())).shape[0]
    original = partitioner.partition

    def partition(*args: Any, **kwargs: Any) -> Any:
        step = original(*args, **kwargs)

        return functools.partial(_capture, step)

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
