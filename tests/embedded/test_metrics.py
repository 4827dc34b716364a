"""Metrics merge over microbatches and wait for step counts and durations; models report the metrics of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clu import metrics as clu_metrics
from t5x import metrics, models
from t5x import metrics as metrics_lib


@pytest.mark.parametrize("values", [6, 6.0, [1, 2, 3], [[1.5, 2.5], [1.0, 1.0]]])
def test_sum_adds_up_whatever_shape(values) -> None:
    merged = metrics.Sum.from_model_output(values).merge(metrics.Sum(total=4))
    assert merged.compute() == 10


def test_average_per_step_divides_by_the_steps_that_were_merged() -> None:
    merged = metrics.AveragePerStep.from_model_output([1.0, 2.0]).merge(
        metrics.AveragePerStep.from_model_output(6.0, steps=2)
    )
    assert merged.compute() == 3.0


def test_step_count_can_be_set_for_all_metrics_at_once() -> None:
    tree = {"a": metrics.AveragePerStep(total=8.0), "b": {"c": metrics.Sum(total=8.0), "d": metrics.StepsPerTime()}}
    tree = metrics.set_step_metrics_num_steps(tree, 4)
    assert tree["a"].compute() == 2.0
    assert tree["b"]["c"].compute() == 8.0
    assert tree["b"]["d"].replace_duration(2.0).compute() == 2.0


def test_duration_can_be_set_for_all_metrics_at_once() -> None:
    tree = {
        "seconds": metrics.Time(),
        "rate": metrics.TimeRate.from_model_output(numerator=8.0),
        "steps": metrics.StepsPerTime.from_model_output(steps=4),
        "sum": metrics.Sum(total=3.0),
    }
    tree = metrics.set_time_metrics_duration(tree, 2.0)
    assert {name: float(metric.compute()) for name, metric in tree.items()} == {
        "seconds": 2.0,
        "rate": 4.0,
        "steps": 2.0,
        "sum": 3.0,
    }


def test_merging_rates_and_times() -> None:
    rate = metrics.TimeRate.from_model_output(numerator=3).merge(metrics.TimeRate.from_model_output(numerator=5))
    steps = metrics.StepsPerTime().merge(metrics.StepsPerTime(steps=2))
    time = metrics.Time(duration=2.0).merge(metrics.Time(duration=9.0))
    assert rate.replace_duration(4).compute() == 2.0
    assert steps.replace_duration(3).compute() == 1.0
    assert time.compute() == 2.0


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_rates_with_durations_are_not_merged() -> None:
    rate = metrics.TimeRate(duration=1.0, numerator=jnp.array(2.0))
    with pytest.raises(AssertionError, match="before their durations are set"):
        rate.merge(rate)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (metrics.Step(steps=None), "Step has no step count: call replace_steps"),
        (metrics.AveragePerStep(steps=1), "AveragePerStep has no total"),
        (metrics.Time(), "Time has no duration: call replace_duration"),
        (metrics.TimeRate(numerator=1), "TimeRate has no duration"),
        (metrics.StepsPerTime(), "StepsPerTime has no duration"),
    ],
)
def test_what_was_never_set_is_named(metric, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric.compute()


def test_kinds_of_metrics_are_told_apart() -> None:
    assert metrics.is_metric_obj(metrics.Sum(total=1))
    assert not metrics.is_metric_obj(1)
    assert metrics.is_time_metric(metrics.StepsPerTime())
    assert not metrics.is_time_metric(metrics.AveragePerStep(total=1))


def test_numbers_become_sums() -> None:
    made = metrics.create_metrics_dict({"loss": 2.0, "tokens": 3})
    assert {name: float(metric.compute()) for name, metric in made.items()} == {"loss": 2.0, "tokens": 3.0}


def test_shapes_become_zeros_of_the_same_metric() -> None:
    def make(x):
        return {
            "nested": clu_metrics.Average(total=x.sum(), count=x.astype(jnp.int32)),
            "rate": metrics.TimeRate(numerator=x),
        }

    shapes = jax.eval_shape(make, jnp.ones((2, 3)))
    defined = {name: metrics.shape_obj_to_defined_obj(metric) for name, metric in shapes.items()}
    np.testing.assert_array_equal(defined["nested"].count, np.zeros((2, 3), np.int32))
    assert defined["nested"].count.dtype == jnp.int32
    assert defined["rate"].numerator.shape == (2, 3)
    assert defined["rate"].duration is None


RNG = np.random.RandomState(0)
LOGITS = jnp.asarray(RNG.randn(2, 4, 3), jnp.float32)
RIGHT = jnp.argmax(LOGITS, -1)
# Three of the eight targets are wrong.
TARGETS = RIGHT.at[0, 0].add(1).at[0, 3].add(1).at[1, 1].add(1) % 3
MASK = jnp.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
SEGMENTS = {
    "encoder": jnp.array([[1, 1, 2, 2], [1, 0, 0, 0]]),
    "decoder": jnp.array([[1, 2, 3, 0], [1, 1, 0, 0]]),
    "empty": jnp.zeros((2, 0), jnp.int32),
}


def computed(metrics) -> dict[str, float]:
    ready = metrics_lib.set_time_metrics_duration(metrics, 2.0)
    return {name: float(metric.compute()) for name, metric in ready.items()}


def test_base_metrics_have_the_values_their_names_say() -> None:
    metrics = models.compute_base_metrics(LOGITS, TARGETS, MASK, jnp.array(10.0), jnp.array(4.0), SEGMENTS)
    cores = jax.device_count()
    expected = {
        "accuracy": 3 / 5,
        "loss": 10.0,
        "loss_per_nonpadding_target_token": 2.0,
        "loss_per_all_target_tokens": 10 / 8,
        "z_loss": 4.0,
        "z_loss_per_all_target_tokens": 0.5,
        "cross_ent_loss": 6.0,
        "cross_ent_loss_per_all_target_tokens": 0.75,
        "timing/seconds": 2.0,
        "timing/seqs": 2.0,
        "timing/steps_per_second": 0.5,
        "timing/seqs_per_second": 1.0,
        "timing/seqs_per_second_per_core": 1.0 / cores,
        "timing/target_tokens_per_second": 4.0,
        "timing/target_tokens_per_second_per_core": 4.0 / cores,
        "non_padding_fraction/loss_weights": 5 / 8,
        "non_padding_fraction/encoder": 5 / 8,
        "non_padding_fraction/decoder": 5 / 8,
        "non_padding_fraction/overall": 10 / 16,
        "effective_batch_size/encoder": 3.0,
        "effective_batch_size/decoder": 4.0,
    }
    got = computed(metrics)
    assert set(got) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)


def test_what_is_not_known_is_not_reported() -> None:
    got = computed(models.compute_base_metrics(LOGITS, TARGETS, None, jnp.array(10.0)))
    assert not [name for name in got if "z_loss" in name or "cross_ent" in name or "effective" in name]
    assert got["accuracy"] == 5 / 8
    assert got["non_padding_fraction/loss_weights"] == 1.0


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_weighted_accuracy_sums_the_weights_of_right_targets() -> None:
    assert models.compute_weighted_accuracy(LOGITS, TARGETS) == 5
    assert models.compute_weighted_accuracy(LOGITS, TARGETS, MASK) == 3
    with pytest.raises(ValueError, match=r"logits of shape \(2, 4\) and targets of shape \(2, 4\)"):
        models.compute_weighted_accuracy(LOGITS[..., 0], TARGETS)


def test_plain_metrics_are_sums_and_can_be_replaced() -> None:
    got = models.compute_metrics(
        LOGITS, TARGETS, MASK, jnp.array(10.0), jnp.array(5.0), {"loss": metrics_lib.Sum(total=1.0)}
    )
    assert {name: float(metric.compute()) for name, metric in got.items()} == {
        "loss": 1.0,
        "accuracy": 3.0,
        "weight_sum": 5.0,
        "num_examples": 2.0,
        "num_tokens": 8.0,
    }
