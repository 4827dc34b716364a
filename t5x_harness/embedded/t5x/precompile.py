"""Compiles a train step and writes its programs, without parameters and, given a backend for TPUs, without TPUs.

usage: python -m t5x.main --run_mode=precompile --gin_file=MODEL.gin --gin_file=t5x/configs/runs/precompile.gin [...]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from t5x import models, partitioning, utils
from t5x import trainer as trainer_lib
from t5x._lazy import tf
from t5x._tasks import as_clu_iterator
from t5x._train_setup import Inputs, verify_vocabularies

_LEARNING_RATE = 1e-3


def precompile(
    *,
    model: models.BaseTransformerModel,
    train_dataset_cfg: utils.DatasetConfig,
    partitioner: partitioning.BasePartitioner,
    model_dir: str,
    random_seed: int | None,
    get_dataset_fn: utils.GetDatasetCallable = utils.get_dataset,
    verify_matching_vocabs_fn: Callable[[utils.DatasetConfig, models.BaseTransformerModel], None]
    | None = utils.verify_matching_vocabs,
) -> None:
    """Compiles the train step of a model for the devices of the partitioner's mesh.

    Writes, into ``model_dir``, serialized HLO modules as ``lowered_hlo_pre_optimization`` and
    ``lowered_hlo_post_optimization``, and ``assignment``, the ids of the mesh's devices as a NumPy array. Only the
    shapes of the data are used. ``random_seed``, 42 by default, is the seed of dropout, which is part of the program.

    Raises:
        ValueError: if ``get_dataset_fn`` returns neither a ``tf.data.Dataset`` nor a ``clu`` iterator.
    """
    verify_vocabularies(verify_matching_vocabs_fn, train_dataset_cfg, model)
    layout = partitioner.get_data_layout(train_dataset_cfg.batch_size)
    dataset = as_clu_iterator(
        get_dataset_fn(train_dataset_cfg, layout.shard_id, layout.num_shards, model.FEATURE_CONVERTER_CLS)
    )
    inputs = Inputs(dataset, layout, train_eval={})
    initializer = utils.TrainStateInitializer(
        optimizer_def=model.optimizer_def,
        init_fn=model.get_initial_variables,
        input_shapes=inputs.input_shapes,
        input_types=inputs.input_types,
        partitioner=partitioner,
    )
    _, dropout_rng = jax.random.split(jax.random.PRNGKey(random_seed or 42))

    def train_step(train_state: Any, batch: Any) -> Any:
        return trainer_lib.train_with_lr(train_state, batch, _LEARNING_RATE, dropout_rng, model, num_microbatches=None)

    step = partitioner.partition(
        train_step,
        in_axis_resources=(initializer.train_state_axes, partitioning.PartitionSpec("data")),
        out_axis_resources=(initializer.train_state_axes, None),
        donate_argnums=(0,),
    )
    # This process's part of a batch: T5X compiles for that, which is the whole batch on one host.
    batch = jax.tree.map(lambda spec: np.ones(spec.shape, spec.dtype), dataset.element_spec)
    lowered = step.lower(initializer.global_train_state_shape, batch)
    tf.io.gfile.makedirs(model_dir)

    def write(name: str, module: Any) -> None:
        with tf.io.gfile.GFile(os.path.join(model_dir, name), "wb") as file:
            file.write(module.as_serialized_hlo_module_proto())

    write("lowered_hlo_pre_optimization", lowered.compiler_ir(dialect="hlo"))
    write("lowered_hlo_post_optimization", lowered.compile().runtime_executable().hlo_modules()[0])
    with tf.io.gfile.GFile(os.path.join(model_dir, "assignment"), "wb") as file:
        np.save(file, partitioner.mesh.device_ids)
