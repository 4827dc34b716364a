"""What every model offers to trainer, evaluator and inference."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
from t5x import decoding
from t5x.metrics import MetricsMap
from typing_extensions import Protocol

if TYPE_CHECKING:
    import numpy as np
    from t5x.optimizers import OptimizerDefType

PyTree = Any
Batch = Mapping[str, jax.Array]


class TokensIdsToLogitsCallable(Protocol):
    """The model as a decoder sees it."""

    def __call__(self, decoding_state: decoding.DecodingState) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Computes the logits of the next token.

        Args:
          decoding_state: The tokens so far and the cache, for batch * num_decodes rows.

        Returns:
          float[rows, vocabulary] logits and the next cache.
        """


class DecodeFnCallable(Protocol):
    """A decoder as a model calls it; `t5x.decoding` has two."""

    def __call__(
        self,
        *,
        inputs: jax.Array,
        cache: Mapping[str, jax.Array],
        tokens_to_logits: TokensIdsToLogitsCallable,
        eos_id: int,
        num_decodes: int,
        decode_rng: jax.Array | None,
        cache_offset: int,
        **kwargs: Any,
    ) -> tuple[jax.Array, jax.Array]:
        """Continues prompts.

        Args:
          inputs: int32[batch, length] prompts, zeros where tokens are wanted.
          cache: The model's autoregressive cache.
          tokens_to_logits: The model.
          eos_id: The token that ends a sequence.
          num_decodes: Continuations of each prompt.
          decode_rng: Key for decoders that draw random numbers.
          cache_offset: Where the batch axis of the cache entries is; 1 for scanned layers.
          **kwargs: What else the decoder takes.

        Returns:
          int32[batch, num_decodes, length] sequences and float32[batch, num_decodes] scores, the best last.
        """


class BaseModel(abc.ABC):
    """A model together with its loss, its metrics and its way to predict.

    Models hold no parameters. The trainer keeps those and passes them in.

    Attributes:
      FEATURE_CONVERTER_CLS: The seqio feature converter that makes this model's batches.
      optimizer_def: The optimizer that the model is trained with.
    """

    FEATURE_CONVERTER_CLS: Callable[..., Any]

    def __init__(self, optimizer_def: OptimizerDefType) -> None:
        self.optimizer_def = optimizer_def

    @abc.abstractmethod
    def loss_fn(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, MetricsMap]:
        """Computes the loss that training minimises.

        Args:
          params: The parameters.
          batch: Features by name.
          dropout_rng: Key of the dropout; None turns dropout off.

        Returns:
          The scalar loss, and metrics by name.
        """

    def eval_fn(self, params: PyTree, batch: Batch) -> tuple[jax.Array, MetricsMap]:
        """Computes loss and metrics without dropout; arguments and results as of `loss_fn`."""
        return self.loss_fn(params=params, batch=batch, dropout_rng=None)

    def predict_batch(self, params: PyTree, batch: Batch, rng: jax.Array | None = None) -> jax.Array:
        """Predicts, and leaves out what `predict_batch_with_aux` gives besides the predictions."""
        return self.predict_batch_with_aux(params=params, batch=batch, rng=rng)[0]

    @abc.abstractmethod
    def predict_batch_with_aux(
        self, params: PyTree, batch: Batch, rng: jax.Array | None = None
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Predicts.

        Args:
          params: The parameters.
          batch: Features by name.
          rng: Key for models that draw random numbers.

        Returns:
          The predictions, batch axis first, and what else there is to say about each, e.g. scores.
        """

    @abc.abstractmethod
    def score_batch(self, params: PyTree, batch: Batch, return_intermediates: bool = False) -> jax.Array:
        """Scores the targets of a batch: the higher, the likelier the model finds them.

        Args:
          params: The parameters.
          batch: Features by name.
          return_intermediates: Whether to return what the network sows into `intermediates` too.

        Returns:
          float[batch] scores.
        """

    @abc.abstractmethod
    def get_initial_variables(
        self,
        rng: jax.Array,
        input_shapes: Mapping[str, Any],
        input_types: Mapping[str, np.dtype] | None = None,
    ) -> Mapping[str, Any]:
        """Initialises the parameters.

        Args:
          rng: Key of the initial values.
          input_shapes: The shape of every feature.
          input_types: The dtype of every feature.

        Returns:
          The variable collections: `params`, `params_axes` (logical axis names) and whatever else the network has.
        """
