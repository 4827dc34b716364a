"""The call signatures that T5X's entry points expect of the functions a config may plug in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import clu.data
import flax.core.scope as flax_scope
import jax
import jax.numpy as jnp
import numpy as np
import seqio
import tensorflow as tf
import typing_extensions

if TYPE_CHECKING:
    from t5x import train_state as train_state_lib
    from t5x._utils.dataset_config import DatasetConfig

Array: TypeAlias = np.ndarray | jax.Array | tf.Tensor
DType: TypeAlias = np.dtype[Any] | type[Any]
PyTree: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]
FeatureConverterFactory = Callable[..., seqio.FeatureConverter]
InferFnResult = Sequence[tuple[int, PyTree]]
InferFnWithAuxResult = tuple[InferFnResult, Mapping[str, Sequence[Any]]]


class EvaluatorConstructor(typing_extensions.Protocol):
    """Makes a ``seqio.Evaluator``; ``functools.partial`` or Gin supply what is not listed here."""

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

        Args:
            mixture_or_task_name: A registered name.
            feature_converter: Turns task features into the model's.
            eval_split: Name of the split to evaluate.
            use_cached: Read SeqIO's offline cache rather than the source.
            seed: For sources and preprocessors that draw at random even when evaluating.
            sequence_length: Hard limit for each feature; None takes the longest example of the split.
            log_dir: Folder for the loggers' files; needed as soon as there is a logger.
            use_memory_cache: Keep the examples in memory between evaluations.
        """
        ...


class InitFnCallable(typing_extensions.Protocol):
    """Makes a model's variables, as ``BaseModel.get_initial_variables`` does."""

    def __call__(
        self, rng: Array, input_shapes: Mapping[str, Array], input_types: Mapping[str, DType] | None
    ) -> flax_scope.FrozenVariableDict:
        """Returns the variables for inputs of these global shapes and dtypes."""
        ...


class LearningRateCallable(typing_extensions.Protocol):
    """A learning rate as a function of the train step."""

    def __call__(self, step: jnp.ndarray) -> jnp.ndarray:
        """Returns the float32 scalar to use at ``step``."""
        ...


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
        ...


class InferStepWithoutRngCallable(typing_extensions.Protocol):
    """Predicts or scores one batch, always the same way."""

    def __call__(
        self,
        params: Mapping[str, Any],
        batch: Mapping[str, jnp.ndarray],
        flax_mutables: Mapping[str, Any] | None = None,
    ) -> PyTree:
        """Returns one row for each example of the batch."""
        ...


InferStepCallable = InferStepWithRngCallable | InferStepWithoutRngCallable


class InferFnCallable(typing_extensions.Protocol):
    """Predicts or scores a whole enumerated dataset, as :func:`t5x.utils.get_infer_fn` returns it."""

    def __call__(
        self, ds: tf.data.Dataset, train_state: train_state_lib.TrainState, rng: jnp.ndarray | None = None
    ) -> InferFnResult | InferFnWithAuxResult:
        """Returns pairs of example index and output, and the auxiliary values if the step gives any."""
        ...


class GetDatasetCallable(typing_extensions.Protocol):
    """Reads a training or inference dataset, as :func:`t5x.utils.get_dataset` does."""

    def __call__(
        self,
        cfg: DatasetConfig,
        shard_id: int,
        num_shards: int,
        feature_converter_cls: FeatureConverterFactory,
        num_epochs: int | None = None,
        continue_from_last_checkpoint: bool = True,
    ) -> clu.data.dataset_iterator.DatasetIterator | tf.data.Dataset:
        """Returns the batches of one shard."""
        ...


class GetEvalDatasetCallable(typing_extensions.Protocol):
    """Reads the datasets of training evaluation, as :func:`t5x.utils.get_training_eval_datasets` does."""

    def __call__(
        self,
        cfg: DatasetConfig,
        shard_id: int,
        num_shards: int,
        eval_steps: int,
        feature_converter_cls: FeatureConverterFactory,
    ) -> Mapping[str, tf.data.Dataset]:
        """Returns one dataset of ``eval_steps`` batches for each task."""
        ...
