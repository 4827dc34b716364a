"""The start of a training run: keys, data and a train state, restored or new."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from t5x import checkpoints, models, partitioning, utils
from t5x._errors import ConfigError
from t5x._train_schedule import Periods

if TYPE_CHECKING:
    from concurrent.futures import Future

    import clu.data
    import tensorflow as tf
    from t5x.train_state import TrainState

    CheckpointManager = checkpoints.OrbaxCheckpointManagerInterface | utils.LegacyCheckpointManager


def check_model_dir(model_dir: str, periods: Periods, use_orbax: bool) -> None:
    """Raises a ConfigError if checkpoints are to be saved below a relative folder, which orbax refuses half-way."""
    if periods.save and use_orbax and not (os.path.isabs(model_dir) or "://" in model_dir):
        raise ConfigError(
            f"train.model_dir ({model_dir!r}) must be an absolute path, because checkpoints are saved in it: "
            f"set MODEL_DIR to {os.path.abspath(model_dir)!r}"
        )


def make_keys(random_seed: int | None, use_hardware_rng: bool) -> tuple[jax.Array, jax.Array]:
    """Returns the key for the parameters and the key for the trainer.

    For None, the seed is taken from the clock, the same in all processes, for the accelerator's generator, which is
    faster and repeats its numbers only for the same partitioning.
    """
    if use_hardware_rng or random_seed is None:
        if random_seed is None:
            random_seed = int(multihost_utils.broadcast_one_to_all(np.int32(time.time())))
            logging.info("No random seed is given: taking %d from the clock.", random_seed)
        else:
            logging.warning(
                "The hardware generator repeats seed %d only on the same devices, partitioning and versions.",
                random_seed,
            )
        utils.set_hardware_rng_ops()
    logging.info("Parameters and dropout come from seed %d.", random_seed)
    init_rng, trainer_rng = jax.random.split(jax.random.PRNGKey(random_seed), 2)
    return init_rng, trainer_rng


def read_periods(checkpoint_cfg: utils.CheckpointConfig, *, eval_period: int, gc_period: int) -> Periods:
    save = checkpoint_cfg.save
    return Periods(
        evaluate=eval_period or 0,
        save=(save.period or 0) if save else 0,
        collect=gc_period or 0,
        save_at=tuple(save.checkpoint_steps or ()) if save else (),
    )


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The data of a run.

    Attributes:
        train_iter: yields global batches; its ``element_spec`` describes their features.
        train_eval: by task name, the batches to evaluate with the training metrics; empty if that is off.
    """

    train_iter: clu.data.dataset_iterator.PeekableDatasetIterator
    data_layout: partitioning.DataLayout
    train_eval: Mapping[str, tf.data.Dataset]

    @property
    def input_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return jax.tree.map(lambda spec: (self.data_layout.batch_size, *spec.shape[1:]), self.train_iter.element_spec)

    @property
    def input_types(self) -> Mapping[str, np.dtype]:
        return jax.tree.map(lambda spec: spec.dtype, self.train_iter.element_spec)

    def dummy_batch(self, partitioner: partitioning.BasePartitioner) -> Mapping[str, jax.Array]:
        """Returns a global batch of ones, laid out like a real one, to compile with."""
        if not isinstance(self.train_iter.element_spec, Mapping):
            raise ConfigError(
                "training needs batches that map feature names to arrays, but get_dataset_fn yields "
                f"{type(self.train_iter.element_spec).__name__}"
            )
        layout = jax.sharding.NamedSharding(partitioner.mesh, partitioner.data_partition_spec)

        def ones(spec: Any, shape: tuple[int, ...]) -> jax.Array:
            filled = np.ones(shape, spec.dtype)
            return jax.make_array_from_callback(shape, layout, lambda index: filled[index])

        spec, shapes = self.train_iter.element_spec, self.input_shapes
        return {name: ones(spec[name], shapes[name]) for name in spec}


def open_inputs(
    *,
    model: models.BaseModel,
    partitioner: partitioning.BasePartitioner,
    checkpoint_cfg: utils.CheckpointConfig,
    train_cfg: utils.DatasetConfig,
    train_eval_cfg: utils.DatasetConfig | None,
    eval_steps: int,
    get_dataset_fn: utils.GetDatasetCallable,
    train_eval_get_dataset_fn: utils.GetEvalDatasetCallable,
    verify_matching_vocabs_fn: Callable[..., None] | None,
) -> Inputs:
    """Opens the training data, and the evaluation data if there is a config for it."""
    if train_cfg.seed and not (checkpoint_cfg.save and checkpoint_cfg.save.save_dataset):
        logging.warning(
            "The train dataset has seed %s, but its position is not saved (SaveCheckpointConfig.save_dataset): after "
            "each restart the same examples come again from the beginning.",
            train_cfg.seed,
        )
    layout = partitioner.get_data_layout(train_cfg.batch_size)
    verify_vocabularies(verify_matching_vocabs_fn, train_cfg, model)
    train_iter = utils.prepare_train_iter(
        get_dataset_fn(train_cfg, layout.shard_id, layout.num_shards, model.FEATURE_CONVERTER_CLS),
        checkpoint_cfg=checkpoint_cfg,
        partitioner=partitioner,
        data_layout=layout,
    )
    train_eval: Mapping[str, tf.data.Dataset] = {}
    if train_eval_cfg:
        verify_vocabularies(verify_matching_vocabs_fn, train_eval_cfg, model)
        train_eval = train_eval_get_dataset_fn(
            train_eval_cfg, layout.shard_id, layout.num_shards, eval_steps, model.FEATURE_CONVERTER_CLS
        )
        if not train_eval:
            logging.warning("There is nothing to evaluate: no dataset came from %s.", train_eval_cfg)
    return Inputs(train_iter, layout, train_eval)


def verify_vocabularies(
    verify_fn: Callable[..., None] | None, cfg: utils.DatasetConfig, model: models.BaseModel
) -> None:
    """Compares the vocabularies of a dataset config with ``model``'s by ``verify_fn``, if there are any."""
    if verify_fn is not None and isinstance(model, models.BaseTransformerModel):
        verify_fn(cfg, model)


def restore_candidates(model_dir: str, checkpoint_cfg: utils.CheckpointConfig) -> list[utils.RestoreCheckpointConfig]:
    """Returns the checkpoints to restore from, best first: this run's own, then the one that the config names."""
    save, restore = checkpoint_cfg.save, checkpoint_cfg.restore
    own = utils.RestoreCheckpointConfig(
        path=model_dir,
        mode="latest",
        dtype=save.dtype if save else "float32",
        checkpointer_cls=save.checkpointer_cls if save else checkpoints.Checkpointer,
        restore_dataset=bool(save and save.save_dataset),
        state_transformation_fns=[
            functools.partial(transform, is_resuming=True)
            for transform in (restore.state_transformation_fns if restore else ())
        ],
    )
    if not restore:
        return [own]
    if restore.mode == "all":
        raise ConfigError(
            "RestoreCheckpointConfig.mode is 'all', but training starts from one checkpoint: use 'specific' or 'latest'"
        )
    if isinstance(restore.path, str):
        return [own, restore]
    if restore.path:
        raise ConfigError(
            f"RestoreCheckpointConfig.path is {restore.path!r}, but training starts from one checkpoint: give its path "
            "as a string"
        )
    return [own]


@dataclasses.dataclass(frozen=True)
class Start:
    """The initial state of training, laid out on the mesh.

    Attributes:
        initializer: the initializer that made it, which knows shapes and axes.
        checkpoint_manager: for saving, or None if nothing is saved or restored.
        first_batch: future of the first batch, which is read in the background.
        seconds: how long it took.
    """

    train_state: TrainState
    initializer: utils.TrainStateInitializer
    checkpoint_manager: CheckpointManager | None
    first_batch: Future[Any]
    seconds: float

    @property
    def step(self) -> int:
        return int(checkpoints.get_local_data(self.train_state.step))


def restore_or_initialize(
    *,
    model: models.BaseModel,
    partitioner: partitioning.BasePartitioner,
    inputs: Inputs,
    checkpoint_cfg: utils.CheckpointConfig,
    model_dir: str,
    init_rng: jax.Array,
    saves: bool,
    initializer_cls: type[utils.TrainStateInitializer],
    use_orbax: bool,
) -> Start:
    """Restores the best candidate, and the position in the data if it was saved, or initializes the parameters."""
    began = time.time()
    candidates = restore_candidates(model_dir, checkpoint_cfg)
    initializer = initializer_cls(
        optimizer_def=model.optimizer_def,
        init_fn=model.get_initial_variables,
        input_shapes=inputs.input_shapes,
        input_types=inputs.input_types,
        partitioner=partitioner,
    )
    restore_cfg, paths = utils.get_first_valid_restore_config_and_paths(candidates)
    if len(paths) > 1:
        raise ConfigError(f"training starts from one checkpoint, but there are {len(paths)}: {', '.join(paths)}")
    train_state = manager = None
    if restore_cfg or saves:
        train_state, manager = utils.create_checkpoint_manager_and_restore(
            initializer,
            partitioner,
            restore_cfg,
            paths[0] if paths else None,
            init_rng,
            save_checkpoint_cfg=checkpoint_cfg.save,
            model_dir=model_dir,
            ds_iter=inputs.train_iter,
            use_orbax=use_orbax,
        )
    # Only now: the position in the data has just been restored.
    first_batch = inputs.train_iter.peek_async()
    if train_state is None:
        train_state = initializer.from_scratch(init_rng)
    seconds = time.time() - began
    logging.info("The train state is there after %.2f seconds.", seconds)
    utils.log_model_info(os.path.join(model_dir, "model-info.txt"), initializer.global_train_state_shape, partitioner)
    return Start(train_state, initializer, manager, first_batch, seconds)
