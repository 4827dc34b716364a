"""What a model reports of a batch."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from clu import metrics as clu_metrics
from t5x import metrics as metrics_lib
from t5x.metrics import AveragePerStep, MetricsMap, StepsPerTime, Sum, Time, TimeRate


def compute_weighted_accuracy(logits: jax.Array, targets: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """Sums the weights of the targets that the model gets right.

    Args:
      logits: float[batch, length, vocabulary].
      targets: int[batch, length].
      weights: float[batch, length]; all ones if None.

    Returns:
      A scalar: the weight (or the number) of right targets.

    Raises:
      ValueError: `logits` doesn't have exactly one axis more than `targets`.
    """
    if logits.ndim != targets.ndim + 1:
        raise ValueError(
            f"logits need one axis more than targets: got logits of shape {logits.shape} and targets of shape "
            f"{targets.shape}"
        )
    right = jnp.argmax(logits, axis=-1) == targets
    return jnp.sum(right if weights is None else right * weights)


def compute_metrics(
    logits: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    loss: jax.Array,
    weight_sum: jax.Array,
    additional_metrics: MetricsMap,
) -> MetricsMap:
    """Makes plain sums of loss, accuracy, weights, examples and tokens.

    Args:
      logits: float[batch, length, vocabulary].
      targets: int[batch, length].
      weights: float[batch, length].
      loss: Scalar, summed over the batch.
      weight_sum: Scalar, the sum of the weights.
      additional_metrics: Metrics to add; they win over those of the same name.

    Returns:
      Metrics by name.
    """
    sums = metrics_lib.create_metrics_dict(
        {
            "loss": loss,
            "accuracy": compute_weighted_accuracy(logits, targets, weights),
            "weight_sum": weight_sum,
            "num_examples": targets.shape[0],
            "num_tokens": targets.size,
        }
    )
    return {**sums, **additional_metrics}


def count_packed_examples(segment_ids: jax.Array) -> jax.Array:
    """Counts the sequences that are packed into a batch.

    Args:
      segment_ids: int[batch, length], numbered from 1 in every row; the padding at the end of a row is 0.

    Returns:
      An integer scalar.
    """
    # Every change of the id starts a sequence, or the padding.
    changes = jnp.sum(segment_ids[:, 1:] != segment_ids[:, :-1])
    rows_with_padding = jnp.sum(segment_ids[:, -1] == 0)
    return segment_ids.shape[0] + changes - rows_with_padding


def compute_base_metrics(
    logits: jax.Array,
    targets: jax.Array,
    mask: jax.Array | None,
    loss: jax.Array,
    z_loss: jax.Array | None = None,
    segment_ids: Mapping[str, jax.Array] | None = None,
) -> MetricsMap:
    """Makes the metrics that every model reports: accuracy, losses, speed, and how full the batch is.

    Args:
      logits: float[batch, length, vocabulary].
      targets: int[batch, length].
      mask: float[batch, length], what each target counts; None if all count the same.
      loss: Scalar, summed over the batch, z-loss included.
      z_loss: Scalar; None if there is none.
      segment_ids: int[batch, length] packed segments by feature, 0 for padding; None to leave those metrics out.

    Returns:
      Metrics by name. Names that begin with `timing/` wait for a duration.
    """
    # Arrays, because metrics pass through compiled functions.
    num_examples, num_tokens = jnp.array(targets.shape[0]), jnp.array(targets.size)
    weight = targets.size if mask is None else jnp.sum(mask)
    accuracy = clu_metrics.Accuracy.from_model_output(logits=logits, labels=targets.astype(jnp.int32), mask=mask)
    return {
        "accuracy": accuracy,
        "loss": AveragePerStep(total=loss),
        "loss_per_nonpadding_target_token": _ratio(loss, weight),
        "loss_per_all_target_tokens": _ratio(loss, num_tokens),
        **_speed(num_examples, num_tokens),
        "non_padding_fraction/loss_weights": _ratio(weight, num_tokens),
        **({} if z_loss is None else _losses_apart(loss, z_loss, num_tokens)),
        **({} if segment_ids is None else _fullness(segment_ids)),
    }


def _ratio(total: jax.Array | int, count: jax.Array | int) -> clu_metrics.Average:
    return clu_metrics.Average(total=total, count=count)


def _speed(num_examples: jax.Array, num_tokens: jax.Array) -> MetricsMap:
    num_devices = jax.device_count()
    rates = {
        "seqs_per_second": num_examples,
        "seqs_per_second_per_core": num_examples / num_devices,
        "target_tokens_per_second": num_tokens,
        "target_tokens_per_second_per_core": num_tokens / num_devices,
    }
    return {
        **{f"timing/{name}": TimeRate.from_model_output(numerator=total) for name, total in rates.items()},
        "timing/steps_per_second": StepsPerTime.from_model_output(),
        "timing/seconds": Time(),
        "timing/seqs": Sum(total=num_examples),
    }


def _losses_apart(loss: jax.Array, z_loss: jax.Array, num_tokens: jax.Array) -> MetricsMap:
    cross_entropy = loss - z_loss
    return {
        "z_loss": AveragePerStep(total=z_loss),
        "z_loss_per_all_target_tokens": _ratio(z_loss, num_tokens),
        "cross_ent_loss": AveragePerStep(total=cross_entropy),
        "cross_ent_loss_per_all_target_tokens": _ratio(jnp.sum(cross_entropy), num_tokens),
    }


def _fullness(segment_ids: Mapping[str, jax.Array]) -> MetricsMap:
    report: dict[str, clu_metrics.Metric] = {}
    all_used, all_positions = jnp.array(0), jnp.array(0)
    for feature, ids in segment_ids.items():
        if ids is None or ids.shape[1] == 0:
            continue
        used, positions = jnp.sum(ids != 0), jnp.array(ids.size)
        report[f"effective_batch_size/{feature}"] = AveragePerStep(total=count_packed_examples(ids))
        report[f"non_padding_fraction/{feature}"] = _ratio(used, positions)
        all_used, all_positions = all_used + used, all_positions + positions
    report["non_padding_fraction/overall"] = _ratio(all_used, all_positions)
    return report
