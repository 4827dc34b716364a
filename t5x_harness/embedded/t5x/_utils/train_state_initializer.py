"""Making a partitioned train state, from a checkpoint or from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import tensorflow as tf
from absl import logging
from t5x import optimizers, partitioning
from t5x import train_state as train_state_lib
from t5x._utils.callables import Array, DType, InitFnCallable
from t5x._utils.checkpoint_configs import RestoreCheckpointConfig
from t5x._utils.restoring import get_fallback_state, get_first_valid_restore_config_and_paths, restore_path


class TrainStateInitializer:
    """Makes a model's train state on the mesh of a partitioner.

    Attributes:
        global_train_state_shape: The train state with a ``jax.ShapeDtypeStruct`` of the unpartitioned array for each
            leaf.
        train_state_axes: The train state with a PartitionSpec, or None, for each leaf.
    """

    global_train_state_shape: train_state_lib.TrainState
    train_state_axes: train_state_lib.TrainState

    def __init__(
        self,
        optimizer_def: optimizers.OptimizerDefType | None,
        init_fn: InitFnCallable,
        input_shapes: Mapping[str, Array],
        partitioner: partitioning.BasePartitioner,
        input_types: Mapping[str, DType] | None = None,
    ) -> None:
        """Works out shapes and partitioning; makes no array yet.

        Args:
            optimizer_def: The optimizer, or None for a state that only infers.
            init_fn: A model's ``get_initial_variables``, as a bound method.
            input_shapes: Shape of each feature of the global batch.
            partitioner: Where the arrays are to lie.
            input_types: Dtype of each feature; float32 where not given.

        Raises:
            AttributeError: ``init_fn`` is not bound to a model.
        """
        if not hasattr(init_fn, "__self__"):
            raise AttributeError(
                f"`init_fn` must be a bound method of a model, such as `model.get_initial_variables`; got {init_fn!r}."
            )

        def make_state(rng: Array) -> train_state_lib.TrainState:
            variables = flax.core.freeze(init_fn(rng=rng, input_shapes=input_shapes, input_types=input_types))
            if optimizer_def:
                return train_state_lib.FlaxOptimTrainState.create(optimizer_def, variables)
            return train_state_lib.InferenceState.create(variables)

        self._make_state = make_state
        self._partitioner = partitioner
        self.global_train_state_shape = jax.eval_shape(make_state, rng=jax.random.PRNGKey(0))
        self.train_state_axes = partitioner.get_mesh_axes(self.global_train_state_shape)
        self._annotate_scanned_layers(init_fn.__self__)

    def _annotate_scanned_layers(self, model: Any) -> None:
        """Tells modules that scan over layers how their parameters are partitioned, if they want to know."""
        module: Any = getattr(model, "module", None)
        if getattr(module, "scan_layers", False) and hasattr(module, "spmd_annotations"):
            model.module = module.clone(parent=None, spmd_annotations=self.train_state_axes.params)

    def from_scratch(self, init_rng: Array) -> train_state_lib.TrainState:
        """Initialises the state in place on the mesh.

        Args:
            init_rng: The PRNG key to initialise from.
        """
        logging.info("Initialising parameters from scratch.")
        # Compiled with the partitioning of the train step, so that no device ever holds all of the model.
        initialise = self._partitioner.partition(
            self._make_state, in_axis_resources=None, out_axis_resources=self.train_state_axes
        )
        return initialise(init_rng)

    def from_checkpoints(
        self,
        restore_cfgs: Sequence[RestoreCheckpointConfig],
        ds_iter: tf.data.Iterator | None = None,
        init_rng: jnp.ndarray | None = None,
    ) -> Iterator[tuple[train_state_lib.TrainState, str]]:
        """Restores the checkpoints of the first config that has any, one after another.

        Args:
            restore_cfgs: In order of preference.
            ds_iter: The input pipeline. Its state is restored too where the config says ``restore_dataset``.
            init_rng: PRNG key for parameters that a checkpoint lacks, with ``fallback_to_scratch``.

        Yields:
            The train state on the mesh, and the path it came from.
        """
        cfg, paths = get_first_valid_restore_config_and_paths(restore_cfgs)
        if cfg is None:
            return
        for path in paths:
            checkpointer = cfg.checkpointer_cls(
                train_state=self.global_train_state_shape,
                partitioner=self._partitioner,
                checkpoints_dir="",  # only for saving
                dataset_iterator=ds_iter if cfg.restore_dataset else None,
                restore_dtype=jnp.dtype(cfg.dtype) if cfg.dtype else None,
            )
            fallback_state = get_fallback_state(cfg, lambda rng: self.from_scratch(rng).state_dict(), init_rng)
            state = restore_path(
                checkpointer,
                path,
                strict=cfg.strict,
                state_transformation_fns=cfg.state_transformation_fns,
                fallback_state=fallback_state,
            )
            yield state, path

    def from_checkpoint(
        self,
        ckpt_cfgs: Sequence[RestoreCheckpointConfig],
        *,
        ds_iter: tf.data.Iterator | None = None,
        init_rng: jnp.ndarray | None = None,
    ) -> train_state_lib.TrainState | None:
        """Restores at most one checkpoint.

        Args:
            ckpt_cfgs: See :meth:`from_checkpoints`.
            ds_iter: See :meth:`from_checkpoints`.
            init_rng: See :meth:`from_checkpoints`.

        Returns:
            The train state, or None if there is no checkpoint.

        Raises:
            ValueError: The configs mean several.
        """
        restored = list(self.from_checkpoints(ckpt_cfgs, ds_iter=ds_iter, init_rng=init_rng))
        if len(restored) > 1:
            paths = ", ".join(path for _, path in restored)
            raise ValueError(f"Expected at most 1 checkpoint to restore but found {len(restored)}: {paths}.")
        return restored[0][0] if restored else None

    def from_checkpoint_or_scratch(
        self,
        ckpt_cfgs: Sequence[RestoreCheckpointConfig],
        *,
        init_rng: Array,
        ds_iter: tf.data.Iterator | None = None,
    ) -> train_state_lib.TrainState:
        """Restores a checkpoint, or initialises if there is none.

        Args:
            ckpt_cfgs: See :meth:`from_checkpoints`.
            init_rng: The PRNG key to initialise from.
            ds_iter: See :meth:`from_checkpoints`.
        """
        restored = self.from_checkpoint(ckpt_cfgs, ds_iter=ds_iter, init_rng=init_rng)
        return self.from_scratch(init_rng) if restored is None else restored
