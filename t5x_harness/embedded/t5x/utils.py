"""Shared by train, eval and infer: data and checkpoint configs, reading, restoring, schedules, inference, logging."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import flax.core
import flax.core.scope as flax_scope
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import typing_extensions
from absl import app, logging
from flax import traverse_util
from flax.linen import partitioning as flax_partitioning
from jax.experimental import multihost_utils
from t5x import _inference, checkpoints, optimizers, partitioning, state_utils
from t5x import train_state as train_state_lib
from t5x._errors import with_hint
from t5x._lazy import clu_data, gfile, seqio, tf
from t5x._learning_rates import FACTORS, Rate, Settings
from t5x._model_info import table
from t5x._tasks import as_clu_iterator, check_batch_size, explaining, get_provider, is_airio, warn_of_airio_settings
from t5x._vocabularies import difference

Array: TypeAlias = Union[np.ndarray, jax.Array, "tf.Tensor"]
DType: TypeAlias = np.dtype[Any] | type[Any]
PyTree: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]
PartitionSpec = partitioning.PartitionSpec
get_local_data = checkpoints.get_local_data
FeatureConverterFactory = Callable[..., "seqio.FeatureConverter"]
if TYPE_CHECKING:
    from t5x import models

    DatasetIterator: TypeAlias = tf.data.Iterator | clu_data.dataset_iterator.DatasetIterator
    TensorBoardLogger = seqio.TensorBoardLogger
else:

    def __getattr__(name: str) -> Any:
        """Gives ``utils.TensorBoardLogger``, which is SeqIO's."""
        if name == "TensorBoardLogger":
            return seqio.TensorBoardLogger
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


_InferFnResult = Sequence[tuple[int, PyTree]]
_InferFnWithAuxResult = tuple[_InferFnResult, Mapping[str, Sequence[Any]]]


class EvaluatorConstructor(typing_extensions.Protocol):
    """Makes a ``seqio.Evaluator``; ``functools.partial`` or Gin supply its other arguments."""

    def __call__(
        self,
        mixture_or_task_name: str,
        feature_converter: seqio.FeatureConverter,
        eval_split: str,
        use_cached: bool,
        seed: int | None,
        sequence_length: Mapping[str, int] | None,
        log_dir: str | None,
        use_memory_cache: bool,
    ) -> seqio.Evaluator:
        """Makes the evaluator of one task or mixture.

        Without ``sequence_length``, features are as long as the longest example of the split; ``seed`` is for sources
        and preprocessors that draw at random even when evaluating.
        """


_SAVE_DTYPES = (None, "float32", "bfloat16")
_RESTORE_DTYPES = (None, "float32", "bfloat16", "float16")
_RESTORE_MODES = ("specific", "latest", "all")


def _check_choice(binding: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{binding}` must be one of {allowed}; got {value!r}.")


@dataclasses.dataclass
class SaveCheckpointConfig:
    """The settings for saving checkpoints.

    Attributes:
        dtype: stores floating-point parameters as 'float32' or 'bfloat16'; None stores them as they are.
        period: train steps between two checkpoints; None saves only the last one.
        checkpoint_steps: additional steps to save at, ascending.
        keep: how many of the newest checkpoints to keep; None keeps all.
        keep_dataset_checkpoints: the same for the state of the input pipeline.
        save_dataset: save the input pipeline's state too.
        checkpointer_cls: makes T5X's own checkpointer; ``checkpoint_manager_cls`` makes the manager for orbax.
        state_transformation_fns: applied in order to the state before it is written.

    Raises:
        ValueError: ``dtype`` is not one of those above.
    """

    dtype: str | None = "float32"
    period: int | None = None
    checkpoint_steps: Sequence[int] | None = None
    keep: int | None = None
    keep_dataset_checkpoints: int | None = None
    save_dataset: bool = False
    checkpointer_cls: checkpoints.CheckpointerConstructor = checkpoints.Checkpointer
    state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = dataclasses.field(default_factory=list)
    checkpoint_manager_cls: checkpoints.CheckpointManagerConstructor = checkpoints.OrbaxCheckpointManagerInterface

    def __post_init__(self) -> None:
        _check_choice("SaveCheckpointConfig.dtype", self.dtype, _SAVE_DTYPES)


@dataclasses.dataclass
class RestoreCheckpointConfig:
    """Which checkpoint to restore, and how.

    Attributes:
        path: one path or several: checkpoints in mode 'specific', otherwise folders that contain some.
        mode: 'specific' restores ``path`` itself, 'latest' the newest in the folder, 'all' each in turn.
        assignment_map: pairs (regex of a model parameter's name, name in the checkpoint or None to leave it out); the
            first match is used. It becomes the first of ``state_transformation_fns``.
        strict: require all of the optimizer state in the checkpoint (TensorFlow checkpoints only).
        fallback_to_scratch: initialize parameters that the checkpoint lacks after the transformations.
        dtype: cast floating-point parameters to 'float32', 'bfloat16' or 'float16'; None keeps the stored one.
        restore_dataset: restore the input pipeline's state, which must exist.
        state_transformation_fns: applied in order to the state that was read.

    Raises:
        ValueError: ``mode`` or ``dtype`` is not one of those above.
    """

    path: str | Sequence[str]
    mode: str = "latest"
    assignment_map: Sequence[tuple[str, str | None]] | None = None
    strict: bool = True
    fallback_to_scratch: bool = False
    dtype: str | None = None
    restore_dataset: bool = False
    checkpointer_cls: checkpoints.CheckpointerConstructor = checkpoints.Checkpointer
    state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn] = ()
    checkpoint_manager_cls: checkpoints.CheckpointManagerConstructor = checkpoints.OrbaxCheckpointManagerInterface

    def __post_init__(self) -> None:
        _check_choice("RestoreCheckpointConfig.mode", self.mode, _RESTORE_MODES)
        _check_choice("RestoreCheckpointConfig.dtype", self.dtype, _RESTORE_DTYPES)
        if self.assignment_map is not None:
            renaming = functools.partial(state_utils.apply_assignment_map, assignment_map=self.assignment_map)
            self.state_transformation_fns = (renaming, *self.state_transformation_fns)


@dataclasses.dataclass
class CheckpointConfig:
    """The settings for saving and for restoring; None turns one off."""

    save: SaveCheckpointConfig | None = None
    restore: RestoreCheckpointConfig | None = None


class LegacyCheckpointer(orbax.checkpoint.Checkpointer):
    """A pair of T5X checkpointers, one to save and one to restore, behind orbax's interface."""

    def __init__(
        self,
        *,
        save_checkpointer: checkpoints.Checkpointer | None = None,
        restore_checkpointer: checkpoints.Checkpointer,
        strict: bool | None = False,
    ) -> None:
        self._save_checkpointer = save_checkpointer
        self._restore_checkpointer = restore_checkpointer
        self._strict = strict

    def save(
        self,
        path: str,
        item: train_state_lib.TrainState,
        force: bool = False,
        custom_metadata: dict[str, Any] | None = None,
        state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = (),
        *,
        concurrent_gb: int = 128,
    ) -> None:
        """Saves the train state ``item``, changed by ``state_transformation_fns`` in order.

        The checkpointer knows its folder and takes the step from the state, so ``path``, ``force`` and
        ``custom_metadata``, which belong to orbax's interface, are not used. About ``concurrent_gb`` gigabytes are in
        memory at once.
        """
        del path, force, custom_metadata
        if self._save_checkpointer is None:
            raise ValueError("Can't save checkpoints: this run has no `SaveCheckpointConfig` (CheckpointConfig.save).")
        self._save_checkpointer.save(item, state_transformation_fns, concurrent_gb=concurrent_gb)

    def restore(
        self,
        path: str,
        item: train_state_lib.TrainState | None = None,
        state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn] = (),
        fallback_state: Mapping[str, Any] | None = None,
        lazy_parameters: bool = False,
    ) -> train_state_lib.TrainState:
        """Restores a train state from a checkpoint of T5X or TensorFlow; ``item`` is not used."""
        del item
        return _restore_path(
            self._restore_checkpointer,
            path,
            strict=bool(self._strict),
            state_transformation_fns=state_transformation_fns,
            fallback_state=fallback_state,
            lazy_parameters=lazy_parameters,
        )


class LegacyCheckpointManager(orbax.checkpoint.CheckpointManager):
    """T5X's checkpointers behind the interface of orbax's manager.

    The arguments are those of ``create_orbax_checkpoint_manager``.
    """

    def __init__(
        self,
        *,
        save_cfg: SaveCheckpointConfig | None,
        restore_cfg: RestoreCheckpointConfig | None,
        train_state_shape: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        ds_iter: DatasetIterator | None = None,
        model_dir: str | None = None,
    ) -> None:
        common = {"train_state": train_state_shape, "partitioner": partitioner}
        saver = restorer = None
        if save_cfg is not None:
            if save_cfg.save_dataset and ds_iter is None:
                raise ValueError(
                    "`SaveCheckpointConfig.save_dataset` is set, but there is no dataset iterator to save."
                )
            saver = save_cfg.checkpointer_cls(
                **common,
                checkpoints_dir=model_dir,
                dataset_iterator=ds_iter if save_cfg.save_dataset else None,
                save_dtype=save_cfg.dtype,
                keep=save_cfg.keep,
                keep_dataset_checkpoints=save_cfg.keep_dataset_checkpoints,
            )
        if restore_cfg is not None:
            restorer = restore_cfg.checkpointer_cls(
                **common,
                checkpoints_dir="",  # only for saving
                dataset_iterator=ds_iter if restore_cfg.restore_dataset else None,
                restore_dtype=jnp.dtype(restore_cfg.dtype) if restore_cfg.dtype else None,
            )
        self._checkpointer = LegacyCheckpointer(
            save_checkpointer=saver,
            restore_checkpointer=restorer,
            strict=restore_cfg is not None and restore_cfg.strict,
        )

    def wait_until_finished(self) -> None:
        """Returns at once: saving is done when ``save`` returns."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def save(
        self,
        train_state: train_state_lib.TrainState,
        state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = (),
    ) -> None:
        """Saves a train state under its step, transformed by ``state_transformation_fns`` in order."""
        self._checkpointer.save("", train_state, state_transformation_fns=state_transformation_fns)

    def restore(
        self,
        paths: Sequence[str] | None,
        restore_cfg: RestoreCheckpointConfig | None = None,
        fallback_state: Mapping[str, Any] | None = None,
    ) -> train_state_lib.TrainState | Sequence[train_state_lib.TrainState] | None:
        """Restores checkpoints, including TensorFlow's; arguments and result are those of the function ``restore``."""
        if restore_cfg is None or paths is None:
            return None
        states = [
            self._checkpointer.restore(
                path, state_transformation_fns=restore_cfg.state_transformation_fns, fallback_state=fallback_state
            )
            for path in paths
        ]
        return states[0] if len(states) == 1 else states


@dataclasses.dataclass
class DatasetConfig:
    """The settings for reading a dataset from a SeqIO task or mixture.

    SeqIO does not use ``runtime_preprocessors``, ``num_prefetch_threads`` and ``num_workers``, which are for AirIO.

    Attributes:
        mixture_or_task_name: a registered name, or the task or mixture itself.
        task_feature_lengths: tokens of each feature. Without packing, None means the longest example.
        batch_size: examples in the global batch.
        seed: for shuffling and random preprocessors; None means the time of day, the same on every host.
        use_cached: read SeqIO's offline cache rather than the source.
        pack: put several short examples into one row, by compiled ops with ``use_custom_packing_ops``.
        module: a module to import first because it registers tasks. Deprecated: import it in Gin.
        use_memory_cache: keep evaluation examples in memory.
        trim_output_features: cut features to ``task_feature_lengths``.
    """

    mixture_or_task_name: str | seqio.Task | seqio.Mixture
    task_feature_lengths: Mapping[str, int]
    split: str
    batch_size: int
    shuffle: bool
    seed: int | None
    use_cached: bool = False
    pack: bool = False
    use_custom_packing_ops: bool = False
    module: str | None = None
    use_memory_cache: bool = True
    trim_output_features: bool = True
    runtime_preprocessors: Sequence[Any] | None = None
    num_prefetch_threads: int | None = None
    num_workers: int | None = 0


def import_module(module: str) -> None:
    """Imports a module for the tasks and mixtures that it registers.

    Raises:
        ImportError: the module, or one that it needs, does not exist.
        RuntimeError: it registers Gin configurables, which must happen before the Gin files are parsed.
    """
    logging.info("Importing %s.", module)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only the named module (or its parent packages) can be the config's mistake; what the module itself
        # imports is the module's own.
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ModuleNotFoundError(
            f"No module named {error.name!r}, which `DatasetConfig.module = {module!r}` asks for. Correct the name "
            "(MIXTURE_OR_TASK_MODULE in most configs), or put the folder that holds it on PYTHONPATH.",
            name=error.name,
        ) from error
    except RuntimeError as error:
        if "configurable after the config was locked" not in str(error):
            raise
        raise RuntimeError(
            f"Module {module!r} registers Gin configurables, but it is imported only after the Gin config was locked. "
            f"Import it from the Gin file instead: add the line `import {module}` and drop `DatasetConfig.module`."
        ) from error


class ShardedDatasetIterator(Iterator[Any]):
    """Lays every batch of another iterator over the mesh; a ``clu.data.dataset_iterator.DatasetIterator``.

    ``iterator`` yields this host's rows of each batch, as trees of NumPy arrays; ``global_shapes`` has their
    global shapes.
    """

    def __init__(
        self,
        iterator: clu_data.dataset_iterator.DatasetIterator,
        partitioner: partitioning.BasePartitioner,
        global_shapes: PyTree,
    ) -> None:
        clu_data.dataset_iterator.DatasetIterator.register(ShardedDatasetIterator)  # clu imports TensorFlow
        self._iterator = iterator
        self._partitioner = partitioner
        self._global_shapes = global_shapes

    def __next__(self) -> PyTree:
        return _lay_over_mesh(self._partitioner, self._global_shapes, next(self._iterator))

    def reset(self) -> None:
        """Starts again from the first batch."""
        self._iterator.reset()

    @property
    def element_spec(self) -> PyTree:
        """Dtype and shape of this host's rows."""
        return self._iterator.element_spec

    def save(self, filename: os.PathLike[str] | str) -> None:
        """Saves the position in the data."""
        self._iterator.save(filename)

    def restore(self, filename: os.PathLike[str] | str) -> None:
        """Returns to a saved position."""
        self._iterator.restore(filename)

    @property
    def iterator(self) -> Any:
        """The iterator that checkpoints store: the ``tf.data`` iterator if there is one, otherwise the wrapped one."""
        if isinstance(self._iterator, clu_data.dataset_iterator.TfDatasetIterator):
            return self._iterator.iterator
        return self._iterator


def _lay_over_mesh(partitioner: partitioning.BasePartitioner, global_shapes: PyTree, host_arrays: PyTree) -> PyTree:
    """Makes global arrays from each host's rows; hosts that share rows must have the same ones."""
    sharding = jax.sharding.NamedSharding(partitioner.mesh, partitioner.data_partition_spec)

    def lay(rows: np.ndarray, global_shape: tuple[int, ...]) -> jax.Array:
        _check_rows(sharding, global_shape)
        return jax.make_array_from_process_local_data(sharding, rows, global_shape)

    return jax.tree.map(lay, host_arrays, global_shapes)


def _check_rows(sharding: jax.sharding.NamedSharding, global_shape: tuple[int, ...]) -> None:
    axes = sharding.spec[0] if sharding.spec else None
    names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    shards = math.prod(sharding.mesh.shape[name] for name in names)
    if global_shape[0] % shards:
        raise ValueError(
            f"A batch of {global_shape[0]} examples can't be divided over {shards} shards (mesh axis "
            f"{' x '.join(names)}): choose a batch size that is a multiple of {shards}."
        )


def prepare_train_iter(
    train_iter: tf.data.Dataset | clu_data.dataset_iterator.DatasetIterator,
    *,
    partitioner: partitioning.BasePartitioner,
    checkpoint_cfg: CheckpointConfig,
    data_layout: partitioning.DataLayout,
) -> clu_data.dataset_iterator.PeekableDatasetIterator:
    """Makes the iterator from which training reads global batches; it supports ``peek``.

    ``train_iter`` yields this host's batches; AirIO's is returned unchanged. ``checkpoint_cfg`` is not used.

    Raises:
        ValueError: ``train_iter`` is neither a dataset nor an iterator with clu's interface.
    """
    del checkpoint_cfg
    if is_airio(train_iter):
        return train_iter
    batches = as_clu_iterator(train_iter)
    global_shapes = jax.tree.map(lambda spec: (data_layout.batch_size, *spec.shape[1:]), batches.element_spec)
    sharded = ShardedDatasetIterator(batches, partitioner, global_shapes)
    return clu_data.dataset_iterator.PeekableDatasetIterator(sharded)


def get_zeros_batch_like_spec(batch_spec: Mapping[str, jax.ShapeDtypeStruct]) -> Mapping[str, jnp.ndarray]:
    """Makes a batch of zeros of these shapes and dtypes."""
    return {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in batch_spec.items()}


def get_zeros_batch_like_dataset(dataset: tf.data.Dataset, batch_size: int | None = None) -> Mapping[str, jnp.ndarray]:
    """Makes a batch of zeros like a dataset's batches; for TensorFlow's, with ``batch_size`` rows if that is given."""
    rows = batch_size if isinstance(dataset, tf.data.Dataset) else None
    specs = {}
    for name, tensor in dataset.element_spec.items():
        dtype = tensor.dtype.as_numpy_dtype if isinstance(tensor.dtype, tf.DType) else tensor.dtype
        shape = (rows, *tensor.shape[1:]) if rows else tuple(tensor.shape)
        specs[name] = jax.ShapeDtypeStruct(shape, dtype)
    return get_zeros_batch_like_spec(specs)


def sync_global_devices(name: str) -> None:
    """Waits until all hosts have reached the barrier ``name``."""
    multihost_utils.sync_global_devices(name)


def multihost_assert_equal(input_tree: PyTree, fail_message: str = "") -> None:
    """Raises an AssertionError with ``fail_message`` unless every host passes an equal tree of arrays."""
    multihost_utils.assert_equal(input_tree, fail_message)


def set_hardware_rng_ops() -> None:
    """Draws JAX's random numbers with the accelerator's own generator, which is faster but not reproducible."""
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")


def run_main(main: Callable[[Sequence[str]], Any], flags_parser: Callable[[list[str]], Any]) -> None:
    """Runs ``main`` as an absl application, with the arguments that ``flags_parser`` leaves, and exits."""
    app.run(main, flags_parser=flags_parser)


class InitFnCallable(typing_extensions.Protocol):
    """Makes a model's variables, as ``BaseModel.get_initial_variables`` does."""

    def __call__(
        self, rng: Array, input_shapes: Mapping[str, Array], input_types: Mapping[str, DType] | None
    ) -> flax_scope.FrozenVariableDict:
        """Returns the variables for inputs of these global shapes and dtypes."""


class LearningRateCallable(typing_extensions.Protocol):
    """A learning rate as a function of the train step."""

    def __call__(self, step: jnp.ndarray) -> jnp.ndarray:
        """Returns the float32 scalar to use at ``step``."""


def create_learning_rate_scheduler(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: int = 1000,
    decay_factor: float = 0.5,
    steps_per_decay: int = 20000,
    steps_per_cycle: int = 100000,
    step_offset: int = 0,
    min_learning_rate: float = 1e-8,
) -> LearningRateCallable:
    """Makes a learning rate schedule, a function of the step, from a product of factors.

    ``factors`` are names of this table joined by ``*``:

    ==========================  =====================================================================================
    factor                      multiplies the rate by
    ==========================  =====================================================================================
    ``constant``                ``base_learning_rate``
    ``linear_warmup``           ``step / warmup_steps``, at most 1
    ``linear_decay``            the base rate with its warm-up, then less ``decay_factor`` of it for each further step;
                                stands alone, without ``constant`` and ``linear_warmup``
    ``rsqrt_decay``             ``1 / sqrt(max(step, warmup_steps))``
    ``rsqrt_normalized_decay``  the same, scaled to be 1 until ``warmup_steps``
    ``decay_every``             ``decay_factor`` once for every ``steps_per_decay`` steps
    ``cosine_decay``            half a cosine from 1 to 0, anew every ``steps_per_cycle`` steps after the warm-up
    ==========================  =====================================================================================

    The schedule counts from ``step_offset``, before which it stands at 0. The rate, a float32 scalar, never falls below
    ``min_learning_rate``.

    Raises:
        ValueError: a factor is not in the table.
    """
    names = [name.strip() for name in factors.split("*")]
    for name in names:
        if name not in FACTORS:
            close = difflib.get_close_matches(name, FACTORS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ValueError(
                f"Unknown factor {name!r} in the learning rate schedule {factors!r}{hint} "
                f"Known factors: {', '.join(FACTORS)}."
            )
    settings = Settings(base_learning_rate, warmup_steps, decay_factor, steps_per_decay, steps_per_cycle)

    def learning_rate(step: jnp.ndarray) -> jnp.ndarray:
        step = jnp.maximum(0, step - step_offset)
        rate: Rate = 1.0
        for name in names:
            rate = FACTORS[name](rate, step, settings)
        return jnp.asarray(jnp.maximum(rate, min_learning_rate), dtype=jnp.float32)

    return learning_rate


class _Restorer(Protocol):
    """Reads T5X and TensorFlow checkpoints: a checkpointer, or orbax's manager."""

    def restore(self, path: str, **kwargs: Any) -> train_state_lib.TrainState:
        """Reads a T5X checkpoint."""

    def restore_from_tf_checkpoint(self, path: str, strict: bool = True) -> train_state_lib.TrainState:
        """Reads a checkpoint of the Mesh TensorFlow T5."""


def _restore_path(
    restorer: _Restorer,
    path: str,
    *,
    strict: bool,
    state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn],
    **kwargs: Any,
) -> train_state_lib.TrainState:
    """Reads one checkpoint: if ``<path>.index`` exists, TensorFlow's, with all optimizer state if ``strict``."""
    if not gfile.exists(f"{path}.index"):
        logging.info("Restoring T5X checkpoint %s", path)
        return restorer.restore(path=path, state_transformation_fns=state_transformation_fns, **kwargs)
    if state_transformation_fns:
        raise ValueError(
            f"{path} is a TensorFlow checkpoint, to which `state_transformation_fns` and `assignment_map` do not "
            "apply. Leave them out, or convert the checkpoint to T5X's format first."
        )
    logging.info("Restoring TensorFlow checkpoint %s", path)
    return restorer.restore_from_tf_checkpoint(path, strict=strict)


def restore(
    checkpoint_manager: checkpoints.OrbaxCheckpointManagerInterface,
    paths: Sequence[str] | None,
    restore_cfg: RestoreCheckpointConfig | None,
    fallback_state: Mapping[str, Any] | None = None,
) -> train_state_lib.TrainState | Sequence[train_state_lib.TrainState] | None:
    """Reads checkpoints through orbax's manager.

    Returns the train state if there is one path, otherwise one for each (a TensorFlow checkpoint ends the list and is
    returned alone); None without paths or config. ``fallback_state`` is a state dict for what a checkpoint lacks after
    the transformations of ``restore_cfg``.

    Raises:
        ValueError: transformations are asked of a TensorFlow checkpoint.
    """
    if restore_cfg is None or paths is None:
        return None
    states = []
    for path in paths:
        state = _restore_path(
            checkpoint_manager,
            path,
            strict=restore_cfg.strict,
            state_transformation_fns=restore_cfg.state_transformation_fns,
            fallback_state=fallback_state,
        )
        if gfile.exists(f"{path}.index"):
            return state
        states.append(state)
    return states[0] if len(states) == 1 else states


def get_first_valid_restore_config_and_paths(
    restore_cfgs: Sequence[RestoreCheckpointConfig],
) -> tuple[RestoreCheckpointConfig | None, Sequence[str]]:
    """Chooses the first config with something to restore, and its checkpoints, ascending by step.

    In mode 'specific', the config is used without a look; otherwise the first folder with checkpoints is used. If
    there is none, the result is ``(None, [])``.

    Raises:
        ValueError: a path to search for checkpoints is not a folder.
    """
    for cfg in restore_cfgs:
        paths = [cfg.path] if isinstance(cfg.path, str) else cfg.path
        if cfg.mode == "specific":
            return cfg, paths
        for folder in paths:
            if not gfile.isdir(folder):
                raise ValueError(
                    f"`RestoreCheckpointConfig.path` must be a directory with mode {cfg.mode!r}, but {folder!r} is "
                    "not: name the folder that holds the checkpoints, or set mode to 'specific' to name one of them."
                )
            found = _checkpoints_in(folder)
            if found:
                return cfg, found[-1:] if cfg.mode == "latest" else found
            logging.info("No checkpoints in %s", folder)
    return None, []


def _checkpoints_in(folder: str) -> Sequence[str]:
    tensorflow_state = tf.train.get_checkpoint_state(folder)
    if tensorflow_state:
        return list(tensorflow_state.all_model_checkpoint_paths)
    return [os.path.join(folder, f"checkpoint_{step}") for step in checkpoints.all_steps(folder)]


def get_fallback_state(
    restore_cfg: RestoreCheckpointConfig | None,
    init_fn: Callable[[jnp.ndarray], Mapping[str, Any]],
    init_rng: jnp.ndarray | None,
) -> Mapping[str, Any] | None:
    """Initializes the state dict that fills a checkpoint's gaps; None if the config does not fill them.

    Raises:
        ValueError: gaps must be filled, but there is no way to initialize a state, or no ``init_rng``.
    """
    if restore_cfg is None or not restore_cfg.fallback_to_scratch:
        return None
    if not restore_cfg.state_transformation_fns:
        raise ValueError(
            "`RestoreCheckpointConfig.fallback_to_scratch` needs `state_transformation_fns` or an `assignment_map`: "
            "without one every parameter must be in the checkpoint."
        )
    if init_rng is None:
        raise ValueError(
            "`RestoreCheckpointConfig.fallback_to_scratch` needs an `init_rng` to initialize parameters with; "
            "evaluation and inference have none."
        )
    return init_fn(init_rng)


class TrainStateInitializer:
    """Makes a model's train state on the mesh of a partitioner.

    ``init_fn`` is a model's ``get_initial_variables``, as a bound method. ``input_shapes`` and ``input_types`` describe
    the global batch; missing types are float32. Without ``optimizer_def``, the state is only for inference.

    Attributes:
        global_train_state_shape: a ``jax.ShapeDtypeStruct`` of the unpartitioned array for each leaf.
        train_state_axes: a PartitionSpec, or None, for each leaf.

    Raises:
        AttributeError: ``init_fn`` is not bound to a model.
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
        """Passes the partitioning of their parameters to modules that scan over layers and take it."""
        module: Any = getattr(model, "module", None)
        if getattr(module, "scan_layers", False) and hasattr(module, "spmd_annotations"):
            model.module = module.clone(parent=None, spmd_annotations=self.train_state_axes.params)

    def from_scratch(self, init_rng: Array) -> train_state_lib.TrainState:
        """Initializes the state in place on the mesh."""
        logging.info("Initializing parameters from scratch.")
        # Compiled with the partitioning of the train step, so that no device ever holds the whole model.
        initialize = self._partitioner.partition(
            self._make_state, in_axis_resources=None, out_axis_resources=self.train_state_axes
        )
        return initialize(init_rng)

    def from_checkpoints(
        self,
        restore_cfgs: Sequence[RestoreCheckpointConfig],
        ds_iter: tf.data.Iterator | None = None,
        init_rng: jnp.ndarray | None = None,
    ) -> Iterator[tuple[train_state_lib.TrainState, str]]:
        """Restores the checkpoints of the first config that has any: yields train states on the mesh, and their paths.

        The state of the input pipeline ``ds_iter`` is restored too if the config has ``restore_dataset``;
        parameters that a checkpoint lacks come from ``init_rng``, with ``fallback_to_scratch``.
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
            state = _restore_path(
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
        """Restores the one checkpoint of ``from_checkpoints``, or returns None if there is none.

        Raises:
            ValueError: the configs name several.
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
        """Restores a checkpoint as ``from_checkpoint`` does, or initializes from ``init_rng`` if there is none."""
        restored = self.from_checkpoint(ckpt_cfgs, ds_iter=ds_iter, init_rng=init_rng)
        return self.from_scratch(init_rng) if restored is None else restored


# Settings of checkpointers that rank checkpoints by a metric; orbax's manager has the same ones.
_RANKING_SETTINGS = (
    "metric_name_to_monitor",
    "metric_mode",
    "keep_checkpoints_without_metrics",
    "force_keep_period",
)


def create_orbax_checkpoint_manager(
    *,
    save_cfg: SaveCheckpointConfig | None = None,
    restore_cfg: RestoreCheckpointConfig | None = None,
    train_state: train_state_lib.TrainState,
    partitioner: partitioning.BasePartitioner,
    ds_iter: DatasetIterator | None = None,
    model_dir: str | None = None,
) -> checkpoints.OrbaxCheckpointManagerInterface:
    """Makes the manager that ``checkpoint_manager_cls`` of the configs names.

    ``train_state`` has a ``jax.ShapeDtypeStruct`` for each leaf. The state of the input pipeline ``ds_iter`` is saved
    or restored too if a config says so.

    Raises:
        ValueError: there is no config at all, or the two name different managers.
    """
    cfgs = [cfg for cfg in (save_cfg, restore_cfg) if cfg is not None]
    managers = {cfg.checkpoint_manager_cls for cfg in cfgs}
    if len(managers) != 1:
        named = " and ".join(sorted(getattr(manager, "__qualname__", repr(manager)) for manager in managers))
        raise ValueError(
            "`checkpoint_manager_cls` must be the same in `SaveCheckpointConfig` and `RestoreCheckpointConfig`; got "
            f"{named or 'neither of the two configs'}."
        )
    with_dataset = any(
        cfg.save_dataset if isinstance(cfg, SaveCheckpointConfig) else cfg.restore_dataset for cfg in cfgs
    )
    ranking = next(filter(None, (_ranking_settings(cfg.checkpointer_cls) for cfg in cfgs)), {})
    return managers.pop()(
        directory=model_dir,
        train_state=train_state,
        partitioner=partitioner,
        dataset_iterator=ds_iter if with_dataset else None,
        save_dtype=save_cfg.dtype if save_cfg else None,
        restore_dtype=restore_cfg.dtype if restore_cfg else None,
        keep=save_cfg.keep if save_cfg else None,
        period=save_cfg.period if save_cfg else None,
        **ranking,
    )


def _ranking_settings(checkpointer_cls: checkpoints.CheckpointerConstructor) -> Mapping[str, Any]:
    """Returns the ranking settings that a ``functools.partial`` of a checkpointer carries or defaults to."""
    if isinstance(checkpointer_cls, functools.partial):
        parameters = inspect.signature(checkpointer_cls).parameters
        return {
            name: parameters[name].default
            for name in _RANKING_SETTINGS
            if name in parameters and parameters[name].default is not inspect.Parameter.empty
        }
    if inspect.isclass(checkpointer_cls) and issubclass(checkpointer_cls, checkpoints.SaveBestCheckpointer):
        logging.warning(
            "%s is given as a class, whose ranking settings the orbax manager does not see: every checkpoint counts "
            "the same. Wrap it in functools.partial to rank by a metric.",
            checkpointer_cls.__qualname__,
        )
    return {}


def create_checkpoint_manager_and_restore(
    train_state_initializer: TrainStateInitializer,
    partitioner: partitioning.BasePartitioner,
    restore_checkpoint_cfg: RestoreCheckpointConfig | None,
    restore_path: str | None,
    fallback_init_rng: jnp.ndarray | None,
    save_checkpoint_cfg: SaveCheckpointConfig | None = None,
    model_dir: str | None = None,
    ds_iter: DatasetIterator | None = None,
    use_orbax: bool = False,
) -> tuple[train_state_lib.TrainState | None, LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface]:
    """Makes a checkpoint manager, orbax's or T5X's own, and restores the checkpoint to start from, if there is one.

    Parameters that the checkpoint lacks come from ``fallback_init_rng``, with ``fallback_to_scratch``. Checkpoints are
    saved in ``model_dir``, by default in ``restore_checkpoint_cfg.path``, and the state of the input pipeline
    ``ds_iter`` is saved or restored too if the configs say so.

    Raises:
        ValueError: there is a restore config but no ``restore_path``, or the settings contradict each other.
    """
    train_state_shape = train_state_initializer.global_train_state_shape
    common: dict[str, Any] = {
        "save_cfg": save_checkpoint_cfg,
        "restore_cfg": restore_checkpoint_cfg,
        "partitioner": partitioner,
        "ds_iter": ds_iter,
        "model_dir": model_dir or (restore_checkpoint_cfg and restore_checkpoint_cfg.path),
    }
    manager: LegacyCheckpointManager | checkpoints.OrbaxCheckpointManagerInterface
    restore_fn: Callable[..., Any]
    if use_orbax:
        manager = create_orbax_checkpoint_manager(train_state=train_state_shape, **common)
        restore_fn = functools.partial(restore, manager)
    else:
        manager = LegacyCheckpointManager(train_state_shape=train_state_shape, **common)
        restore_fn = manager.restore
    fallback_state = get_fallback_state(
        restore_checkpoint_cfg, lambda rng: train_state_initializer.from_scratch(rng).state_dict(), fallback_init_rng
    )
    if restore_checkpoint_cfg is None:
        return None, manager
    if not isinstance(restore_path, str) or not restore_path:
        raise ValueError(
            f"Expected one checkpoint to restore, but `RestoreCheckpointConfig.path` is {restore_path!r}: name one, or "
            "leave the restore config out."
        )
    return restore_fn([restore_path], restore_checkpoint_cfg, fallback_state), manager


def log_model_info(
    log_file: str | None, full_train_state: train_state_lib.TrainState, partitioner: partitioning.BasePartitioner
) -> None:
    """Logs name, size, shape and partitioning of every variable, into ``log_file`` too; only the first host does."""
    if jax.process_index() != 0:
        return
    lines = list(table(full_train_state, partitioner))
    for line in lines:
        logging.info("%s", line)
    if log_file is not None:
        with gfile.GFile(log_file, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))


class InferStepWithRngCallable(typing_extensions.Protocol):
    """Predicts or scores one batch, drawing random numbers."""

    def __call__(
        self,
        params: Mapping[str, Any],
        batch: Mapping[str, jnp.ndarray],
        rng: jnp.ndarray | None = None,
        flax_mutables: Mapping[str, Any] | None = None,
    ) -> PyTree:
        """Returns one row for each example of the batch."""


class InferStepWithoutRngCallable(typing_extensions.Protocol):
    """Predicts or scores one batch, without random numbers."""

    def __call__(
        self,
        params: Mapping[str, Any],
        batch: Mapping[str, jnp.ndarray],
        flax_mutables: Mapping[str, Any] | None = None,
    ) -> PyTree:
        """Returns one row for each example of the batch."""


InferStepCallable = InferStepWithRngCallable | InferStepWithoutRngCallable


class InferFnCallable(typing_extensions.Protocol):
    """Predicts or scores a whole enumerated dataset, as ``t5x.utils.get_infer_fn`` returns it."""

    def __call__(
        self, ds: tf.data.Dataset, train_state: train_state_lib.TrainState, rng: jnp.ndarray | None = None
    ) -> _InferFnResult | _InferFnWithAuxResult:
        """Returns pairs of example index and output, and the auxiliary values if the step gives any."""


def get_infer_fn(
    infer_step: InferStepCallable,
    batch_size: int,
    train_state_axes: train_state_lib.TrainState,
    partitioner: partitioning.BasePartitioner,
    keep_aux_as_numpy: bool = False,
) -> InferFnCallable:
    """Makes a function that predicts or scores a whole dataset.

    ``infer_step`` does one global batch of ``batch_size`` examples, as ``step(params, batch[, rng][, flax_mutables])``;
    each row of what it returns belongs to the example of that row. It may return a pair of rows and a mapping of
    auxiliary rows, which stay arrays with ``keep_aux_as_numpy`` and are lists otherwise.

    Returns:
        A function of an enumerated dataset of unbatched examples, a train state and an optional PRNG key. It returns
        the same list of (index, output as plain Python values), in ascending order, on every host; and, for steps with
        auxiliary values, a mapping of lists in that order.
    """
    step = partitioner.partition(
        _inference.step_with_indices(infer_step),
        in_axis_resources=(
            train_state_axes.params,
            partitioner.data_partition_spec,
            None,
            partitioner.data_partition_spec,
            train_state_axes.flax_mutables,
        ),
        out_axis_resources=(None, None),
    )
    layout = partitioner.get_data_layout(batch_size)

    def infer_fn(
        ds: tf.data.Dataset, train_state: train_state_lib.TrainState, rng: jnp.ndarray | None = None
    ) -> _InferFnResult | _InferFnWithAuxResult:
        multihost_assert_equal(
            jax.tree.map(lambda spec: np.array(spec.shape), ds.element_spec),
            "The examples have different shapes on different hosts: the dataset is probably not deterministic.",
        )
        num_examples = _inference.length_of(ds)
        batches = _inference.pad(ds, num_examples, batch_size).shard(layout.num_shards, layout.shard_id)
        batches = batches.batch(batch_size // layout.num_shards, drop_remainder=True)
        multihost_assert_equal(np.array(len(batches)), "The hosts have different numbers of batches.")
        logging.info("Inference of %d examples in %d batches of %d.", num_examples, len(batches), batch_size)

        results = []
        for indices, batch in batches.as_numpy_iterator():
            step_rng = None
            if rng is not None:
                step_rng, rng = jax.random.split(rng)
            result = _inference.run_step(step, partitioner, train_state, batch, step_rng, indices)
            jax.tree.map(_inference.start_copy, result)
            results.append(result)

        indices, outputs = _inference.gather(results)
        if len(indices) != num_examples:
            raise ValueError(
                f"The step returned outputs for {len(indices)} of the dataset's {num_examples} examples: each index "
                "must come back once."
            )
        return _inference.as_python(indices, outputs, keep_aux_as_numpy)

    return infer_fn


def round_vocab_size_to_multiple(vocabulary: seqio.Vocabulary, divisor: int = 128) -> int:
    """Rounds a vocabulary's size up to a multiple of ``divisor``, so that embedding tables split evenly."""
    return -(-vocabulary.vocab_size // divisor) * divisor


def get_vocabulary(cfg: DatasetConfig) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    """Finds the vocabularies of a task's or mixture's inputs and targets; imports the ``module`` of ``cfg`` first.

    A task without both features (a language model's) must have one vocabulary for all its features, not counting those
    passed through as they are; it is returned twice.

    Raises:
        ValueError: the task does not exist, or its features have several vocabularies.
    """
    if cfg.module:
        warnings.warn(
            "`DatasetConfig.module` (MIXTURE_OR_TASK_MODULE) is deprecated: import the module in the Gin file.",
            DeprecationWarning,
            stacklevel=2,
        )
        import_module(cfg.module)
    provider: Any = cfg.mixture_or_task_name
    if is_airio(provider):
        named = importlib.import_module("airio.core").get_vocabularies(provider)
    else:
        provider = get_provider(cfg)
        named = {name: feature.vocabulary for name, feature in provider.output_features.items()}
    if "inputs" in named and "targets" in named:
        return named["inputs"], named["targets"]
    if not named:
        raise ValueError(f"{provider.name!r} has no vocabulary: it has no output features.")
    tokenizing = {name: v for name, v in named.items() if not isinstance(v, seqio.PassThroughVocabulary)}
    candidates = tokenizing or named
    first_name, first = next(iter(candidates.items()))
    for name, vocabulary in candidates.items():
        if vocabulary != first:
            raise ValueError(
                f"{provider.name!r} does not have both 'inputs' and 'targets', so all its features must share one "
                f"vocabulary, but they are different:\n{difference(first_name, first, name, vocabulary)}"
            )
    return first, first


def verify_matching_vocabs(cfg: DatasetConfig, model: models.BaseTransformerModel) -> None:
    """Checks that a task tokenizes as the model expects.

    Raises:
        ValueError: a vocabulary of the task is not equal to the model's. The text lists the differences.
    """
    inputs, targets = get_vocabulary(cfg)
    differences = []
    for task_name, of_task, model_name, of_model in (
        ("task inputs", inputs, "model.input_vocabulary", model.input_vocabulary),
        ("task targets", targets, "model.output_vocabulary", model.output_vocabulary),
    ):
        if of_task != of_model:
            differences.append(difference(task_name, of_task, model_name, of_model))
    if differences:
        listed = "\n".join(dict.fromkeys(differences))
        raise ValueError(
            f"Model and Task vocabularies do not match for {get_provider(cfg).name!r}:\n{listed}\n"
            "Bind the model's vocabulary (VOCABULARY in most configs) to the task's, or choose a task made for it."
        )


class GetDatasetCallable(typing_extensions.Protocol):
    """Reads a training or inference dataset, as ``t5x.utils.get_dataset`` does."""

    def __call__(
        self,
        cfg: DatasetConfig,
        shard_id: int,
        num_shards: int,
        feature_converter_cls: FeatureConverterFactory,
        num_epochs: int | None = None,
        continue_from_last_checkpoint: bool = True,
    ) -> clu_data.dataset_iterator.DatasetIterator | tf.data.Dataset:
        """Returns the batches of one shard."""


class GetEvalDatasetCallable(typing_extensions.Protocol):
    """Reads the datasets of training evaluation, as ``t5x.utils.get_training_eval_datasets`` does."""

    def __call__(
        self,
        cfg: DatasetConfig,
        shard_id: int,
        num_shards: int,
        eval_steps: int,
        feature_converter_cls: FeatureConverterFactory,
    ) -> Mapping[str, tf.data.Dataset]:
        """Returns one dataset of ``eval_steps`` batches for each task."""


def get_dataset(
    cfg: DatasetConfig,
    shard_id: int,
    num_shards: int,
    feature_converter_cls: FeatureConverterFactory,
    num_epochs: int | None = None,
    continue_from_last_checkpoint: bool = False,
) -> tf.data.Dataset | clu_data.dataset_iterator.DatasetIterator:
    """Reads one shard of a dataset, ``num_epochs`` times, or forever by default.

    Its batches have ``cfg.batch_size / num_shards`` examples: int32 arrays by feature, of shape (batch, length).
    ``continue_from_last_checkpoint`` must be False: only deterministic pipelines can.

    Raises:
        ValueError: the batch can't be shared out evenly, or the task or its split does not exist.
        AssertionError: the offline cache is asked for and there is none.
    """
    if continue_from_last_checkpoint:
        raise ValueError(
            "`continue_from_last_checkpoint` must be False: `t5x.utils.get_dataset` can't start in the middle of a "
            "dataset. Bind a `get_dataset_fn` that can."
        )
    if cfg.module:
        import_module(cfg.module)
    check_batch_size(cfg.batch_size, num_shards)
    seed = cfg.seed
    if seed is None:
        now = np.int32(time.time())
        seed = int(multihost_utils.broadcast_one_to_all(now))
    shard_info = seqio.ShardInfo(index=shard_id, num_shards=num_shards)
    return get_dataset_inner(cfg, shard_info, feature_converter_cls, seed, num_epochs)


def get_dataset_inner(
    cfg: DatasetConfig,
    shard_info: seqio.ShardInfo,
    feature_converter_cls: FeatureConverterFactory,
    seed: int | None = None,
    num_epochs: int | None = None,
) -> tf.data.Dataset:
    """Reads one shard as ``get_dataset`` does, after its module is imported, with a seed that all hosts must share.

    Raises:
        ValueError: the task or its split does not exist.
        AssertionError: the offline cache is asked for and there is none; or the seeds of the hosts differ.
    """
    provider = get_provider(cfg)
    warn_of_airio_settings(cfg)
    shard_batch_size = cfg.batch_size // shard_info.num_shards
    if seed is not None:
        multihost_assert_equal(
            np.array(seed),
            f"The hosts would shuffle {provider.name!r} differently: process {jax.process_index()} has seed {seed}.",
        )
    logging.info(
        "Reading %r, split %r: %d examples a batch and shard, seed %s.",
        provider.name,
        cfg.split,
        shard_batch_size,
        seed,
    )
    with explaining(cfg, provider):
        return seqio.get_dataset(
            mixture_or_task_name=provider,
            task_feature_lengths=cfg.task_feature_lengths,
            feature_converter=feature_converter_cls(pack=cfg.pack, use_custom_packing_ops=cfg.use_custom_packing_ops),
            dataset_split=cfg.split,
            use_cached=cfg.use_cached,
            shuffle=cfg.shuffle,
            num_epochs=num_epochs,
            shard_info=shard_info,
            seed=seed,
            batch_size=shard_batch_size,
            trim_output_features=cfg.trim_output_features,
        )


def get_training_eval_datasets(
    cfg: DatasetConfig,
    shard_id: int,
    num_shards: int,
    eval_steps: int,
    feature_converter_cls: FeatureConverterFactory,
    deterministic: bool = False,
    model_dir: str | None = None,
    start_step: int = 0,
) -> Mapping[str, tf.data.Dataset]:
    """Reads the datasets of training evaluation, by name: each task alone, and a mixture as a whole too.

    Every dataset is exactly ``eval_steps`` batches long; a small split repeats. Tasks without the split are left out.
    ``deterministic`` must be False, and ``model_dir`` and ``start_step`` are not used: T5X's public release has no
    deterministic pipelines.

    Raises:
        ValueError: the batch can't be shared out evenly, or the task does not exist.
    """
    del model_dir, start_step
    provider = get_provider(cfg)
    if deterministic:
        raise ValueError("Deterministic training evaluation needs a pipeline that T5X's public release does not have.")
    check_batch_size(cfg.batch_size, num_shards)

    read = functools.partial(
        get_dataset,
        shard_id=0,
        num_shards=1,
        feature_converter_cls=feature_converter_cls,
        # Finite, so that a split whose examples are all filtered out ends.
        num_epochs=eval_steps * cfg.batch_size,
        continue_from_last_checkpoint=False,
    )

    def batches(single: DatasetConfig) -> tf.data.Dataset:
        # Sharded after packing, example by example: files may be fewer than hosts, and every host must get the same
        # number of batches.
        examples = read(dataclasses.replace(single, batch_size=1)).unbatch().repeat()
        shard = examples.shard(num_shards, shard_id).batch(cfg.batch_size // num_shards, drop_remainder=True)
        shard = shard.take(eval_steps)
        return shard.cache() if cfg.use_memory_cache else shard

    datasets = {}
    for task in seqio.get_subtasks(provider):
        if cfg.split in task.splits:
            logging.info("Reading task %r for training evaluation.", task.name)
            datasets[task.name] = batches(dataclasses.replace(cfg, mixture_or_task_name=task.name))
        else:
            logging.info("Task %r has no split %r: it is left out of training evaluation.", task.name, cfg.split)
    if isinstance(provider, seqio.Mixture):
        datasets[provider.name] = batches(cfg)
    return datasets


def flatten_dict_string_keys(x: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flattens a nested dictionary; the keys of each path are joined by ``/``."""
    return traverse_util.flatten_dict(flax.core.unfreeze(x), sep="/")


def override_params_axes_names(
    model_variables: flax_scope.FrozenVariableDict,
    params_axes_names_override: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> flax_scope.FrozenVariableDict:
    """Renames the logical axes of parameters in the collection 'params_axes' of a model's variables.

    ``params_axes_names_override`` has pairs of a regex and axis names. A parameter takes the names of the first regex
    that matches all of its ``/``-joined name, and keeps its own if none does.

    Raises:
        ValueError: there is no 'params_axes' collection, or the number of names is not a parameter's number of axes.
        AssertionError: a parameter's entry in 'params_axes' is not axis metadata.
    """
    if "params_axes" not in model_variables:
        raise with_hint(
            ValueError("Model variables do not contain a 'params_axes' collection to apply an override to."),
            f"They contain {', '.join(sorted(model_variables)) or 'nothing'}.",
        )
    rules = [(re.compile(pattern), names) for pattern, names in params_axes_names_override]
    variables = flax.core.unfreeze(model_variables)
    axes = traverse_util.flatten_dict(variables["params_axes"])
    for path, param in traverse_util.flatten_dict(variables["params"]).items():
        name = "/".join(path)
        names = next((names for pattern, names in rules if pattern.fullmatch(name)), None)
        if names is None:
            continue
        if param.ndim != len(names):
            raise ValueError(
                f"Provided axis name override for {name} does not match param rank ({param.ndim}): {tuple(names)}"
            )
        axes_path = (*path[:-1], f"{path[-1]}_axes")
        present = axes.get(axes_path)
        assert present is None or isinstance(present, flax_partitioning.AxisMetadata), f"{name}: {present!r}"
        logging.info("Axes of %s: %s instead of %s", name, names, present.names if present else "none")
        axes[axes_path] = flax_partitioning.AxisMetadata(names=names)
    variables["params_axes"] = traverse_util.unflatten_dict(axes)
    return flax.core.freeze(variables)


def find_next_checkpoint_step(
    checkpoint_steps_index: int,
    inner_num_steps: int,
    is_checkpoint_step: bool,
    host_step: int,
    checkpoint_steps: Sequence[int],
    epoch_end_step: int,
    checkpoint_period: int,
    first_step: int,
) -> tuple[int, bool]:
    """Shortens a stretch of train steps to end on the next of ``checkpoint_steps``, which are ascending or None.

    A listed step counts when it lies in the ``inner_num_steps`` steps after ``host_step``, after ``first_step``, not
    after ``epoch_end_step``, and is not one at which the period, counted from ``first_step``, saves anyway. The search
    begins at ``checkpoint_steps_index``.

    Returns:
        The length of the stretch, and whether a checkpoint is due at its end (``is_checkpoint_step`` if no step
        counts).
    """
    for listed in (checkpoint_steps or ())[checkpoint_steps_index:]:
        if listed > host_step + inner_num_steps:
            break
        if first_step < listed <= epoch_end_step and (listed - first_step) % checkpoint_period:
            return listed - host_step, True
    return inner_num_steps, is_checkpoint_step


def find_first_checkpoint_step(
    checkpoint_steps_index: int, checkpoint_steps: Sequence[int], first_step: int, host_step: int
) -> int:
    """Finds the first of ``checkpoint_steps``, which are ascending or None, that has not been reached.

    Returns the index of the first step, from ``checkpoint_steps_index`` on, that is neither before ``host_step`` nor
    ``first_step``, where nothing is saved; the last index when there is none.
    """
    last = len(checkpoint_steps or ()) - 1
    index = checkpoint_steps_index
    while index < last and (checkpoint_steps[index] < host_step or checkpoint_steps[index] == first_step):
        index += 1
    return index
