"""Token-level losses: cross entropy with an optional z-loss, and the factors that losses are divided by."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

# Residuals of the backward pass: numerator and denominator of the softmax, its logarithm, the log-normalizer, the soft
# targets, and the z-loss coefficient.
_Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


@enum.unique
class SpecialLossNormalizingFactor(enum.Enum):
    """Loss denominators that are computed from the batch instead of given as a number.

    ``NUM_REAL_TARGET_TOKENS`` is the sum of the loss weights (by default: the count of non-padding targets),
    ``NUM_TOTAL_TARGET_TOKENS`` the count of target positions, padding included, and with ``AVERAGE_PER_SEQUENCE`` every
    sequence counts the same, whatever its length; packed ones count one by one.
    """

    NUM_REAL_TARGET_TOKENS = 1
    NUM_TOTAL_TARGET_TOKENS = 2
    AVERAGE_PER_SEQUENCE = 3


def _cross_entropy_parts(
    logits: jax.Array, targets: jax.Array, z_loss: jax.Array | float
) -> tuple[tuple[jax.Array, jax.Array], _Residuals]:
    """Computes the loss and everything that its derivative reuses; a training step runs this."""
    peak = logits.max(axis=-1, keepdims=True)  # [..., 1]
    exp_shifted = jnp.exp(logits - peak)
    partition = exp_shifted.sum(axis=-1, keepdims=True)
    log_partition = jnp.log(partition)
    log_probs = logits - peak - log_partition  # [..., classes]
    log_z = jnp.squeeze(log_partition + peak, axis=-1)  # [...]
    penalty = z_loss * jnp.square(log_z)
    loss = penalty - (targets * log_probs).sum(axis=-1)
    residuals = (exp_shifted, partition, log_probs, log_z, targets, jnp.asarray(z_loss))
    return (loss, penalty), residuals


@jax.custom_vjp
def cross_entropy_with_logits(
    logits: jax.Array, targets: jax.Array, z_loss: jax.Array | float
) -> tuple[jax.Array, jax.Array]:
    """Computes the cross entropy of soft targets, plus a penalty that keeps the softmax normalizer near one.

    ``logits``, unnormalized log probabilities, and ``targets``, the probability of each class, are float[..., classes].
    The penalty is ``z_loss * logsumexp(logits) ** 2``: Chowdhery et al. 2022, section 5, arXiv:2204.02311.

    The derivative is written out by hand, which keeps one softmax instead of the chain of intermediates that automatic
    differentiation would keep. No gradient flows from the penalty that is returned for logging, and none to its
    coefficient.

    Returns:
        Two float[...] arrays: the loss with the penalty added, and the penalty alone.
    """
    # Without a derivative, as in evaluations and scores, T5X computes it in this way and rounds differently.
    log_z = jax.nn.logsumexp(logits, axis=-1, keepdims=True)  # [..., 1]
    penalty = z_loss * jnp.square(jnp.squeeze(log_z, axis=-1))  # [...]
    return penalty - (targets * (logits - log_z)).sum(axis=-1), penalty


def _cross_entropy_backward(
    residuals: _Residuals, cotangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    numerator, denominator, log_probs, log_z, targets, z_loss = residuals
    of_loss = cotangents[0][..., None]  # [..., 1]
    # d/dlogits of -sum(t * log p) is p - t because the targets of one position sum to one.
    pull = (1 + 2 * z_loss * log_z)[..., None]
    to_logits = of_loss * (pull * numerator / denominator - targets)
    to_targets = -of_loss * log_probs
    return to_logits.astype(log_probs.dtype), to_targets.astype(targets.dtype), jnp.zeros_like(z_loss)


cross_entropy_with_logits.defvjp(_cross_entropy_parts, _cross_entropy_backward)


def _smoothed_targets(targets: jax.Array, classes: int, smoothing: float) -> tuple[jax.Array, jax.Array]:
    """Spreads ``smoothing`` of the probability over the wrong classes: Szegedy et al. 2015, arXiv:1512.00567.

    Besides the float32[..., classes] targets, their entropy is returned: the least loss that any logits can reach.
    """
    right = 1.0 - smoothing
    wrong = smoothing / (classes - 1)
    # The tiny number keeps 0 * log(0) at 0 when there is no smoothing.
    entropy = -(right * jnp.log(right) + (classes - 1) * wrong * jnp.log(wrong + 1e-20))
    hit = targets[..., None] == jnp.arange(classes)  # [..., classes]
    return jnp.where(hit, right, wrong).astype(jnp.float32), entropy


def compute_weighted_cross_entropy(
    logits: jax.Array,
    targets: jax.Array,
    weights: jax.Array | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    loss_normalizing_factor: float | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sums the cross entropy of float[batch, length, classes] logits over all target positions, int[batch, length].

    ``weights``, float[batch, length], are the weights of positions, all ones if None. ``label_smoothing`` is the
    probability that is moved from the right class to all others; the entropy of the smoothed targets is subtracted, so
    that a perfect model still reaches zero. On ``z_loss`` see ``cross_entropy_with_logits``. Both losses are divided by
    ``loss_normalizing_factor``, unless that is None.

    Returns:
        Three scalars: the loss (z-loss included), the z-loss, and the sum of the weights.

    Raises:
        ValueError: ``logits`` doesn't have exactly one axis more than ``targets``.
    """
    if logits.ndim != targets.ndim + 1:
        raise ValueError(
            f"logits need one axis more than targets: got logits of shape {logits.shape} and targets of shape "
            f"{targets.shape}"
        )
    soft_targets, entropy = _smoothed_targets(targets, logits.shape[-1], label_smoothing)
    loss, penalty = cross_entropy_with_logits(logits, soft_targets, z_loss=z_loss)  # [batch, length]
    loss = loss - entropy
    if weights is None:
        weight_sum = jnp.asarray(targets.size, jnp.float32)
    else:
        loss, penalty, weight_sum = loss * weights, penalty * weights, jnp.sum(weights)
    if loss_normalizing_factor is not None:
        loss, penalty = loss / loss_normalizing_factor, penalty / loss_normalizing_factor
    return jnp.sum(loss), jnp.sum(penalty), weight_sum


def convert_special_loss_normalizing_factor_to_enum(x: str) -> SpecialLossNormalizingFactor:
    """Reads the name of a special factor, in upper or lower case, as Gin files write it."""
    try:
        return SpecialLossNormalizingFactor[x.upper()]
    except KeyError:
        known = ", ".join(factor.name for factor in SpecialLossNormalizingFactor)
        raise ValueError(f"unknown loss normalizing factor {x!r}; use a number or one of {known}") from None


def _weight_of_segment(segment_ids: jax.Array, weights: jax.Array) -> jax.Array:
    """Gives every position the summed weight of the packed sequence it belongs to; padding (segment 0) gets 0."""

    def of_row(ids: jax.Array, row: jax.Array) -> jax.Array:
        # A row of n positions packs at most n sequences, numbered from 1.
        totals = jax.ops.segment_sum(row, ids, num_segments=ids.size + 1)
        return jnp.where(ids == 0, 0, totals[ids])

    return jax.vmap(of_row)(segment_ids, weights)


def get_loss_normalizing_factor_and_weights(
    loss_normalizing_factor: float | int | str | SpecialLossNormalizingFactor | None,
    batch: Mapping[str, jax.Array],
) -> tuple[Any, jax.Array | None]:
    """Converts a configured loss normalizing factor to a number, and returns the weight of each target position.

    A special factor (or its name) is computed from the batch: ``decoder_target_tokens``, ``decoder_loss_weights`` (if
    missing, every non-padding target weighs one) and, for packed sequences, ``decoder_segment_ids``.

    Returns:
        The factor (None for no division, a number or a scalar array), and float[batch, length] weights. The weights are
        None when the batch has none and the factor needs none.

    Raises:
        ValueError: the name of the factor is unknown.
    """
    weights = batch.get("decoder_loss_weights")
    if isinstance(loss_normalizing_factor, str):
        loss_normalizing_factor = convert_special_loss_normalizing_factor_to_enum(loss_normalizing_factor)
    if not isinstance(loss_normalizing_factor, SpecialLossNormalizingFactor):
        return loss_normalizing_factor, weights

    targets = batch["decoder_target_tokens"]
    if weights is None:
        weights = (targets > 0).astype(jnp.float32)
    match loss_normalizing_factor:
        case SpecialLossNormalizingFactor.NUM_REAL_TARGET_TOKENS:
            return weights.sum(), weights
        case SpecialLossNormalizingFactor.NUM_TOTAL_TARGET_TOKENS:
            return targets.size, weights
        case SpecialLossNormalizingFactor.AVERAGE_PER_SEQUENCE:
            if "decoder_segment_ids" in batch:
                sequence_weight = _weight_of_segment(batch["decoder_segment_ids"], weights)
            else:
                sequence_weight = weights.sum(axis=-1, keepdims=True)  # [batch, 1]
            # Positions of a sequence without any weight must get 0 instead of 0 / 0.
            share = jnp.where(sequence_weight == 0, 0, weights / jnp.where(sequence_weight == 0, 1, sequence_weight))
            return share.sum(), share
