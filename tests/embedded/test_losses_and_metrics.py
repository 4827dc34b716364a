"""Losses and their gradients follow the textbook formulas; metrics merge, and models report those of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from t5x import losses, metrics, models
from t5x import metrics as metrics_lib
from t5x.losses import SpecialLossNormalizingFactor

RNG = np.random.RandomState(0)
LOGITS = (RNG.randn(2, 3, 5) * 3).astype(np.float32)
TARGETS = np.array([[1, 4, 0], [2, 2, 3]])
WEIGHTS = np.array([[1.0, 0.5, 0.0], [2.0, 1.0, 1.0]], np.float32)


def log_z(logits: np.ndarray) -> np.ndarray:
    return np.log(np.exp(logits.astype(np.float64)).sum(-1))


def log_probs(logits: np.ndarray) -> np.ndarray:
    return logits - log_z(logits)[..., None]


def test_very_large_logits_give_finite_losses_and_gradients() -> None:
    logits = jnp.array([[1e4, -1e4, 0.0]])
    value, gradient = jax.value_and_grad(lambda x: losses.cross_entropy_with_logits(x, jnp.eye(3)[:1], 0.0)[0].sum())(
        logits
    )
    assert value == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((1, 3)))


def test_gradient_to_logits_is_that_of_the_formula() -> None:
    soft = np.asarray(jax.nn.softmax(RNG.randn(2, 3, 5)))
    gradient = jax.grad(lambda x: losses.cross_entropy_with_logits(x, soft, 0.1)[0].sum())(LOGITS)
    probs = np.exp(log_probs(LOGITS))
    expected = probs - soft + 0.2 * log_z(LOGITS)[..., None] * probs
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_no_gradient_flows_from_the_logged_z_loss_nor_to_its_coefficient() -> None:
    soft = np.full((2, 3, 5), 0.2, np.float32)
    of_logged = jax.grad(lambda x: losses.cross_entropy_with_logits(x, soft, 0.1)[1].sum())(LOGITS)
    to_coefficient = jax.grad(lambda z: losses.cross_entropy_with_logits(LOGITS, soft, z)[0].sum())(0.1)
    np.testing.assert_array_equal(of_logged, np.zeros_like(LOGITS))
    assert to_coefficient == 0.0


def test_gradients_keep_the_dtype_of_the_logits() -> None:
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    gradient = jax.grad(lambda x: losses.cross_entropy_with_logits(x, jnp.eye(5)[TARGETS], 0.0)[0].sum())(logits)
    assert gradient.dtype == jnp.bfloat16


def test_weighted_cross_entropy_sums_with_weights_and_divides() -> None:
    loss, z_loss, weight_sum = losses.compute_weighted_cross_entropy(
        jnp.asarray(LOGITS), jnp.asarray(TARGETS), WEIGHTS, z_loss=0.1, loss_normalizing_factor=4.0
    )
    z = 0.1 * log_z(LOGITS) ** 2
    each = -np.take_along_axis(log_probs(LOGITS), TARGETS[..., None], -1)[..., 0] + z
    np.testing.assert_allclose(loss, (each * WEIGHTS).sum() / 4, rtol=1e-5)
    np.testing.assert_allclose(z_loss, (z * WEIGHTS).sum() / 4, rtol=1e-5)
    assert weight_sum == 5.5


def test_without_weights_every_target_counts_one() -> None:
    loss, _, weight_sum = losses.compute_weighted_cross_entropy(jnp.asarray(LOGITS), jnp.asarray(TARGETS))
    each = -np.take_along_axis(log_probs(LOGITS), TARGETS[..., None], -1)
    np.testing.assert_allclose(loss, each.sum(), rtol=1e-5)
    assert weight_sum == 6


# Two packed sequences and padding; one sequence and padding, without a second one.
PACKED = {
    "decoder_target_tokens": jnp.array([[5, 6, 7, 8, 0], [5, 6, 0, 0, 0]]),
    "decoder_segment_ids": jnp.array([[1, 1, 1, 2, 0], [1, 1, 0, 0, 0]]),
    "decoder_positions": jnp.array([[0, 1, 2, 0, 0], [0, 1, 0, 0, 0]]),
    "decoder_loss_weights": jnp.array([[1.0, 0.5, 0.5, 4.0, 0.0], [0.0, 0.25, 0.0, 0.0, 0.0]]),
}
UNPACKED = {name: PACKED[name] for name in ("decoder_target_tokens", "decoder_loss_weights")}
TOKENS_ONLY = {"decoder_target_tokens": PACKED["decoder_target_tokens"]}


@pytest.mark.parametrize("factor", [None, 7, 2.5])
def test_plain_factors_are_passed_on(factor: float | None) -> None:
    assert losses.get_loss_normalizing_factor_and_weights(factor, TOKENS_ONLY) == (factor, None)
    assert losses.get_loss_normalizing_factor_and_weights(factor, PACKED) == (factor, PACKED["decoder_loss_weights"])


@pytest.mark.parametrize(
    ("factor", "batch", "number", "weights"),
    [
        ("NUM_REAL_TARGET_TOKENS", TOKENS_ONLY, 6, [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]),
        ("NUM_REAL_TARGET_TOKENS", UNPACKED, 6.25, [[1, 0.5, 0.5, 4, 0], [0, 0.25, 0, 0, 0]]),
        ("NUM_TOTAL_TARGET_TOKENS", UNPACKED, 10, [[1, 0.5, 0.5, 4, 0], [0, 0.25, 0, 0, 0]]),
        ("AVERAGE_PER_SEQUENCE", TOKENS_ONLY, 2, [[0.25, 0.25, 0.25, 0.25, 0], [0.5, 0.5, 0, 0, 0]]),
        ("AVERAGE_PER_SEQUENCE", UNPACKED, 2, [[1 / 6, 1 / 12, 1 / 12, 2 / 3, 0], [0, 1, 0, 0, 0]]),
        ("AVERAGE_PER_SEQUENCE", PACKED, 3, [[0.5, 0.25, 0.25, 1, 0], [0, 1, 0, 0, 0]]),
    ],
)
@pytest.mark.parametrize("spell", [str.lower, str.upper, SpecialLossNormalizingFactor.__getitem__])
def test_special_factors_are_worked_out(factor, batch, number, weights, spell) -> None:
    got_number, got_weights = losses.get_loss_normalizing_factor_and_weights(spell(factor), batch)
    np.testing.assert_allclose(got_number, number, rtol=1e-6)
    np.testing.assert_allclose(got_weights, weights, rtol=1e-6)


def test_sequences_without_any_weight_count_nothing() -> None:
    batch = {**PACKED, "decoder_loss_weights": jnp.array([[0.0, 0.0, 0.0, 2.0, 0.0], [0.0] * 5])}
    number, weights = losses.get_loss_normalizing_factor_and_weights("AVERAGE_PER_SEQUENCE", batch)
    assert number == 1
    np.testing.assert_array_equal(weights, [[0, 0, 0, 1, 0], [0] * 5])


def test_the_last_bits_are_those_of_t5x_with_and_without_a_derivative() -> None:
    """T5X computes the loss of evaluations and scores differently from the loss that gradients need."""
    logits = jnp.asarray(np.random.RandomState(1).randn(64, 32).astype(np.float32) * 4)
    targets, coefficient = jnp.eye(32)[jnp.arange(64) % 32], jnp.float32(1e-2)
    log_sum = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    evaluated = -jnp.sum(targets * (logits - log_sum), axis=-1) + coefficient * jax.lax.square(log_sum[:, 0])
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_partition = jnp.log(jnp.exp(shifted).sum(axis=-1))
    penalty = coefficient * jax.lax.square(log_partition + logits.max(axis=-1))
    trained = -jnp.sum(targets * (shifted - log_partition[:, None]), axis=-1) + penalty
    assert (evaluated != trained).any()
    np.testing.assert_array_equal(losses.cross_entropy_with_logits(logits, targets, coefficient)[0], evaluated)
    with_derivative, _ = jax.vjp(lambda x: losses.cross_entropy_with_logits(x, targets, coefficient)[0], logits)
    np.testing.assert_array_equal(with_derivative, trained)


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


def test_kinds_of_metrics_are_told_apart() -> None:
    assert metrics.is_metric_obj(metrics.Sum(total=1))
    assert not metrics.is_metric_obj(1)
    assert metrics.is_time_metric(metrics.StepsPerTime())
    assert not metrics.is_time_metric(metrics.AveragePerStep(total=1))


def test_numbers_become_sums() -> None:
    made = metrics.create_metrics_dict({"loss": 2.0, "tokens": 3})
    assert {name: float(metric.compute()) for name, metric in made.items()} == {"loss": 2.0, "tokens": 3.0}


NUMBERS = np.random.RandomState(0)
GUESSES = jnp.asarray(NUMBERS.randn(2, 4, 3), jnp.float32)
RIGHT = jnp.argmax(GUESSES, -1)
# Three of the eight targets are wrong.
ANSWERS = RIGHT.at[0, 0].add(1).at[0, 3].add(1).at[1, 1].add(1) % 3
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
    metrics = models.compute_base_metrics(GUESSES, ANSWERS, MASK, jnp.array(10.0), jnp.array(4.0), SEGMENTS)
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
    got = computed(models.compute_base_metrics(GUESSES, ANSWERS, None, jnp.array(10.0)))
    assert not [name for name in got if "z_loss" in name or "cross_ent" in name or "effective" in name]
    assert got["accuracy"] == 5 / 8
    assert got["non_padding_fraction/loss_weights"] == 1.0


def test_plain_metrics_are_sums_and_can_be_replaced() -> None:
    got = models.compute_metrics(
        GUESSES, ANSWERS, MASK, jnp.array(10.0), jnp.array(5.0), {"loss": metrics_lib.Sum(total=1.0)}
    )
    assert {name: float(metric.compute()) for name, metric in got.items()} == {
        "loss": 1.0,
        "accuracy": 3.0,
        "weight_sum": 5.0,
        "num_examples": 2.0,
        "num_tokens": 8.0,
    }


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"logits of shape \(2, 3, 5\) and targets of shape \(2, 3, 1\)"):
            losses.compute_weighted_cross_entropy(jnp.asarray(LOGITS), jnp.ones((2, 3, 1), jnp.int32))
        with pytest.raises(ValueError, match=r"'PER_WORD'; use a number or one of NUM_REAL_TARGET_TOKENS, NUM_TOTAL_"):
            losses.convert_special_loss_normalizing_factor_to_enum("PER_WORD")

    def test_rates_with_durations_are_not_merged(self) -> None:
        rate = metrics.TimeRate(duration=1.0, numerator=jnp.array(2.0))
        with pytest.raises(AssertionError, match="before their durations are set"):
            rate.merge(rate)

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
    def test_what_was_never_set_is_named(self, metric, message) -> None:
        with pytest.raises(ValueError, match=message):
            metric.compute()

    def test_weighted_accuracy_sums_the_weights_of_right_targets(self) -> None:
        assert models.compute_weighted_accuracy(GUESSES, ANSWERS) == 5
        assert models.compute_weighted_accuracy(GUESSES, ANSWERS, MASK) == 3
        with pytest.raises(ValueError, match=r"logits of shape \(2, 4\) and targets of shape \(2, 4\)"):
            models.compute_weighted_accuracy(GUESSES[..., 0], ANSWERS)
