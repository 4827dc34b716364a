"""Compiles a train step and writes its programs, with no parameters and, given a backend for them, without TPUs.

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
from t5x._lazy import clu_data, tf
from t5x._train_setup import Inputs, vocabulary_check

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
    """Compiles the train step of a model for the partitioner's devices.

    Writes, into ``model_dir``, serialized HLO modules as ``lowered_hlo_pre_optimization`` and
    ``lowered_hlo_post_optimization``, and ``assignment``, the ids of the mesh's devices as a NumPy array.

    Args:
        model: what would be trained.
        train_dataset_cfg: the data, of which only the shapes are used.
        partitioner: its mesh is compiled for.
        model_dir: made if it is not there.
        random_seed: of dropout, which is part of the program; 42 by default.
        get_dataset_fn: opens ``train_dataset_cfg``.
        verify_matching_vocabs_fn: raises where dataset and model have different vocabularies; None does not look.

    Raises:
        ValueError: if ``get_dataset_fn`` returns neither a ``tf.data.Dataset`` nor a ``clu`` iterator.
    """
    vocabulary_check(model, verify_matching_vocabs_fn)(train_dataset_cfg)
    layout = partitioner.get_data_layout(train_dataset_cfg.batch_size)
    dataset = get_dataset_fn(train_dataset_cfg, layout.shard_id, layout.num_shards, model.FEATURE_CONVERTER_CLS)
    if isinstance(dataset, tf.data.Dataset):
        dataset = clu_data.TfDatasetIterator(dataset, checkpoint=True)
    if not isinstance(dataset, clu_data.dataset_iterator.DatasetIterator):
        raise ValueError(f"get_dataset_fn returned unsupported type {type(dataset)}.")
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
    # This process's part of a batch, as the data has it: T5X compiles for that, and it is all of it on one host.
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
