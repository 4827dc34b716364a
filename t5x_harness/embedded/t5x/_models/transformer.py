"""What all models of token sequences have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from t5x import losses
from t5x._models.base import BaseModel, Batch, DecodeFnCallable, PyTree
from t5x._models.metrics import compute_base_metrics
from t5x.metrics import MetricsMap

if TYPE_CHECKING:
    import seqio
    from flax import linen as nn
    from t5x.optimizers import OptimizerDefType

LossNormalizingFactor = float | int | str | losses.SpecialLossNormalizingFactor | None


class BaseTransformerModel(BaseModel):
    """A model of sequences of tokens.

    Attributes:
      module: The network.
    """

    def __init__(
        self,
        module: nn.Module,
        input_vocabulary: seqio.Vocabulary,
        output_vocabulary: seqio.Vocabulary,
        optimizer_def: OptimizerDefType,
        decode_fn: DecodeFnCallable | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: LossNormalizingFactor = None,
    ) -> None:
        """Puts a model together.

        Args:
          module: The network.
          input_vocabulary: Of the inputs.
          output_vocabulary: Of the targets.
          optimizer_def: The optimizer that the model is trained with.
          decode_fn: How to predict.
          label_smoothing: See `t5x.losses.compute_weighted_cross_entropy`.
          z_loss: See there.
          loss_normalizing_factor: What the loss is divided by: a number, None, or a special factor.
        """
        super().__init__(optimizer_def=optimizer_def)
        self.module = module
        self._input_vocabulary, self._output_vocabulary = input_vocabulary, output_vocabulary
        self._decode_fn = decode_fn
        self._loss_normalizing_factor = loss_normalizing_factor
        self._label_smoothing, self._z_loss = label_smoothing, z_loss

    @property
    def input_vocabulary(self) -> seqio.Vocabulary:
        """The vocabulary of the inputs."""
        return self._input_vocabulary

    @property
    def output_vocabulary(self) -> seqio.Vocabulary:
        """The vocabulary of the targets."""
        return self._output_vocabulary

    @property
    def decode_fn(self) -> DecodeFnCallable | None:
        """How the model predicts."""
        return self._decode_fn

    @abc.abstractmethod
    def _compute_logits(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Runs the network on whole targets: float[batch, length, vocabulary]; arguments as of `loss_fn`."""

    def loss_fn(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, MetricsMap]:
        """Computes the weighted cross entropy of the targets.

        Args:
          params: The parameters.
          batch: Features by name.
          dropout_rng: Key of the dropout; None turns dropout off.

        Returns:
          The scalar loss, summed over the batch, and metrics by name.
        """
        targets = batch["decoder_target_tokens"]
        logits = self._compute_logits(params, batch, dropout_rng)
        factor, weights = losses.get_loss_normalizing_factor_and_weights(self._loss_normalizing_factor, batch)
        loss, z_loss, _ = losses.compute_weighted_cross_entropy(
            logits,
            targets=targets,
            weights=weights,
            label_smoothing=self._label_smoothing,
            z_loss=self._z_loss,
            loss_normalizing_factor=factor,
        )
        metrics = self._compute_metrics(
            logits=logits, targets=targets, mask=weights, loss=loss, z_loss=z_loss, segment_ids=_segments(batch)
        )
        return loss, metrics

    def _compute_metrics(
        self,
        logits: jax.Array,
        targets: jax.Array,
        mask: jax.Array,
        loss: jax.Array,
        z_loss: jax.Array | None = None,
        segment_ids: Mapping[str, jax.Array] | None = None,
    ) -> MetricsMap:
        """Makes the metrics of a batch; subclasses add their own. Arguments as of `compute_base_metrics`."""
        return compute_base_metrics(logits, targets, mask, loss, z_loss, segment_ids)


def _segments(batch: Batch) -> dict[str, jax.Array]:
    """Finds the packed segments of every feature; features that aren't packed have one segment a row."""
    suffix = "_segment_ids"
    packed = {name.removesuffix(suffix): ids for name, ids in batch.items() if name.endswith(suffix)}
    if packed:
        return packed
    counted = ("encoder_input_tokens", "decoder_target_tokens")
    return {name: tokens != 0 for name, tokens in batch.items() if name in counted}


def score_targets(
    compute_logits: Callable[..., Any], params: PyTree, batch: Batch, return_intermediates: bool
) -> jax.Array | tuple[jax.Array, Mapping[str, Any]]:
    """Sums the log probabilities of the targets of every sequence.

    Args:
      compute_logits: A model's `_compute_logits`.
      params: The parameters.
      batch: Features by name; `decoder_loss_weights` says what each target counts.
      return_intermediates: Whether to return intermediates too.

    Returns:
      float[batch] scores. With intermediates, a pair of them and of what the network sowed, to which the entry
      `decoder` adds the targets, their weights and the log probability of each.
    """
    targets, weights = batch["decoder_target_tokens"], batch["decoder_loss_weights"]
    sown: Mapping[str, Any] = {}
    if return_intermediates:
        logits, variables = compute_logits(params=params, batch=batch, mutable=["intermediates"])
        sown = variables.get("intermediates", {})
    else:
        logits = compute_logits(params, batch)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1], dtype=jnp.float32)
    token_scores = -losses.cross_entropy_with_logits(logits, one_hot, 0.0)[0] * weights
    scores = token_scores.sum(axis=-1)
    if not return_intermediates:
        return scores
    of_decoder = {"target_tokens": (targets,), "loss_weights": (weights,), "token_scores": (token_scores,)}
    return scores, {**sown, "decoder": {**sown.get("decoder", {}), **of_decoder}}


def decoder_arguments(
    given: MutableMapping[str, Any] | None, rng: jax.Array | None, vocabulary: seqio.Vocabulary
) -> dict[str, Any]:
    """Completes the arguments of a decoder.

    Args:
      given: What the caller wants; it's left unchanged.
      rng: Key for the decoder, if the caller passes it on its own.
      vocabulary: Says which token ends a sequence, unless the caller does.

    Returns:
      Keyword arguments for the decoder.

    Raises:
      ValueError: There are two keys.
    """
    arguments = dict(given or {})
    if rng is not None:
        if arguments.get("decode_rng") is not None:
            raise ValueError(
                f"two random keys for decoding: rng={rng} and decoder_params['decode_rng']={arguments['decode_rng']}; "
                "give only one of them"
            )
        arguments["decode_rng"] = rng
    arguments.setdefault("eos_id", vocabulary.eos_id or 1)
    return arguments


def cache_batch_axis(module: nn.Module) -> int:
    """Says where the batch axis of a network's cache entries is: it comes second after the axis of scanned layers."""
    return 1 if getattr(module, "scan_layers", False) else 0


def pick_decodes(
    sequences: jax.Array, scores: jax.Array, return_all_decodes: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Makes a prediction of what a decoder gives: all continuations of each prompt, or the last and best one."""
    if return_all_decodes:
        return sequences, {"scores": scores}
    return sequences[:, -1], {"scores": scores[:, -1]}
